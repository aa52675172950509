"""``python -m mon_lib.experiments list | run NAME ... | report``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence

import torch

from ..data import DataUnavailableError
from ..errors import ConvergenceError
from ..training import CheckpointError
from ._files import check_folder, folder_or_default
from ._recipes import PROFILES
from ._registry import EXPERIMENTS, find
from ._results import show
from ._run import check_device, check_seeds, run
from ._unfinished import Busy

PROGRAM = "python -m mon_lib.experiments"
# What can be met that is no fault of the code: it gets one line. Anything else keeps its traceback.
EXPECTED = (
    Busy, CheckpointError, ConvergenceError, DataUnavailableError, FloatingPointError, OSError, ValueError, torch.OutOfMemoryError,
)  # fmt: skip
# PyTorch raises the first for nearly all that it cannot do, as a decomposition that fails: one seed of many, and one line.
OF_A_SEED = (RuntimeError, *EXPECTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    Returns
    -------
    int
        0; 1 where a run failed or a file of results is damaged; 130 where it was interrupted. What makes no sense ends with 2
        before anything runs.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    options.names = list(dict.fromkeys(getattr(options, "names", ())))
    try:
        check_seeds(getattr(options, "seeds", [0]))  # one by one they were checked, not whether one is there twice
    except ValueError as error:
        parser.error(str(error))
    _check_folder(parser, options)
    try:
        return options.do(options)
    except EXPECTED as error:
        return _failed(error)


def _failed(error: BaseException, what: str = "error") -> int:
    text = " ".join(str(error).split())
    if not text or not isinstance(error, EXPECTED):
        text = f"{type(error).__name__.lstrip('_')}{': ' if text else ''}{text}"
    print(f"{what}: {text}", file=sys.stderr)
    return 1


def _list(options: argparse.Namespace) -> int:
    width = max(map(len, EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        paper, quick = experiment.paper, experiment.quick
        print(f"{name:<{width}}  {experiment.claim}  {experiment.question}")
        print(
            f"{'':<{width}}  {experiment.parameters:,} parameters; paper: {paper.data}, {paper.epochs} epochs; "
            f"quick: {quick.data}{'' if quick.train is None else f' ({quick.train:,} images)'}, {quick.epochs} epochs"
        )
    return 0


def _report(options: argparse.Namespace) -> int:
    """What can be shown, then a line about each file that cannot."""
    faults = show(options.names or None, options.profile, options.folder)
    sys.stdout.flush()
    for fault in faults:
        print(f"warning: {' '.join(fault.split())}", file=sys.stderr)
    return 1 if faults else 0


def _run(options: argparse.Namespace) -> int:
    """Each seed by itself: one that fails does not keep the others from running."""
    code, left = 0, [(name, seed) for name in options.names for seed in options.seeds]
    while left:
        name, seed = left[0]
        try:
            run(
                name, options.profile, [seed], options.data_root, options.device, options.out,
                resume=options.resume, again=options.again, say=_say,
            )  # fmt: skip
        except DataUnavailableError as error:
            return _failed(error)
        except OF_A_SEED as error:
            code = _failed(error, f"{name}-{options.profile}-seed{seed} failed")
        except KeyboardInterrupt:
            print("\ninterrupted; to go on where this stopped:", file=sys.stderr)
            for command in _commands(left, options):
                print(f"  {command}", file=sys.stderr)
            return 130
        left.pop(0)
    return code


def _say(line: str) -> None:
    print(line, flush=True)


def _commands(left: Sequence[tuple[str, int]], options: argparse.Namespace) -> list[str]:
    """What runs the rest: the experiment that was stopped with the seeds it lacks, then the others."""
    named: dict[str, list[str]] = {}
    for name, seed in left:
        named.setdefault(name, []).append(str(seed))
    commands = []
    for name, seeds in named.items():
        words = [name, "--profile", options.profile, "--seeds", *seeds]
        for option, value in (("--data-root", options.data_root), ("--device", options.device), ("--out", options.out)):
            words += [] if value is None else [option, str(value)]
        commands.append(f"{PROGRAM} run {shlex.join(words)} --resume{' --again' if options.again else ''}")
    return commands


def _check_folder(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Results are read from a folder that is there, and written to one that is there or can be made."""
    if options.do is _list:
        return
    given = options.out if options.do is _run else options.folder
    try:
        folder = folder_or_default(given)
        is_file = folder.exists() and not folder.is_dir()
    except (OSError, RuntimeError) as error:  # the second where ~ names nobody
        parser.error(f"the folder {given or 'of MON_RESULTS'} cannot be used ({error}); pass another")
    if is_file:
        parser.error(f"{folder} is a file; pass a folder of results")
    if options.do is _report and given is not None and not folder.is_dir():
        parser.error(f"there is no folder {folder}; pass one that run has written results to")


class _Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: error: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="The experiments of the book, by name.")
    commands = parser.add_subparsers(required=True, metavar="list | run | report")
    folder = _argument(check_folder)

    command = commands.add_parser("list", help="every experiment, and what it answers")
    command.set_defaults(do=_list)

    command = commands.add_parser("run", help="run experiments, a file of results for each seed")
    command.add_argument("names", nargs="+", metavar="NAME", type=_argument(lambda name: find(name).name))
    command.add_argument("--profile", choices=PROFILES, default="quick", help="quick (default): minutes on a CPU; paper: as it did")
    command.add_argument("--seeds", nargs="+", type=_argument(_seed), default=[0, 1, 2], metavar="SEED", help="default: 0 1 2")
    command.add_argument("--data-root", type=folder, metavar="FOLDER", help="where data is; default: MON_DATA, or the user's cache")
    command.add_argument("--device", type=_argument(lambda name: str(check_device(name))), help="default: a GPU where there is one")
    command.add_argument("--out", type=folder, metavar="FOLDER", help="where results go; default: MON_RESULTS, or results/")
    command.add_argument("--resume", action="store_true", help="continue runs that were interrupted")
    command.add_argument("--again", action="store_true", help="run even where there is a result, or an interrupted run")
    command.set_defaults(do=_run)

    command = commands.add_parser("report", help="what was run and what it gave, beside the paper")
    command.add_argument("names", nargs="*", metavar="NAME", type=_argument(lambda name: find(name).name))
    command.add_argument("--profile", choices=PROFILES, help="default: both")
    where = "where results are; default: MON_RESULTS, or results/"
    command.add_argument("--folder", "--out", type=folder, metavar="FOLDER", help=where)
    command.set_defaults(do=_report)
    return parser


def _argument(convert: Callable) -> Callable:
    """argparse shows the text of this error, and hides that of a ValueError."""

    def checked(text: str):
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        hint = "; names of experiments go before --seeds" if text in EXPERIMENTS else ""
        raise ValueError(f"seed {text!r} is not an integer{hint}") from None
    return check_seeds([seed])[0]


if __name__ == "__main__":
    raise SystemExit(main())
