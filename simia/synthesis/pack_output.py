"""Write the packs of a complete synthesis: into a temporary folder beside the target, renamed when they are complete."""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from pathlib import Path

from simia.errors import UserError
from simia.pack_files import is_leftover
from simia.synthesis.stage import Recipe, StageOutputs
from simia.synthesis.stage_errors import describe_failure
from simia.synthesis.stage_figures import SynthesisFigures, write_figures


def write_packs(recipe: Recipe, outputs: StageOutputs, figures: SynthesisFigures, out: Path, run_id: str) -> list[Path]:
    """Write the packs to `out` and return their folders; equal packs that exist already are left as they are.

    Raises `UserError` if `out` holds something else, or if the recipe or the disk fails. Nothing of the run is lost then.
    """
    again = f"simia runs resume {run_id}"
    draft = out.absolute().parent / f".{out.name}.{run_id}"
    try:
        shutil.rmtree(draft, ignore_errors=True)  # of a killed process
        draft.mkdir(parents=True)
        try:
            packs = recipe.write(outputs, draft / out.name)
            write_figures(figures, packs)
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise UserError(
                f"recipe {recipe.name} cannot write its packs: {describe_failure(error)}; no reply is lost: correct it, then {again}"
            ) from error
        if packs and not (out.is_dir() and is_same_tree(draft / out.name, out)):
            if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
                raise UserError(
                    f"{out} contains other files than those of run {run_id}: move it away, or choose another folder: {again} --out FOLDER"
                )
            (draft / out.name).rename(out)
        return [out / pack.relative_to(draft / out.name) for pack in packs]
    except OSError as error:
        raise UserError(
            f"{out} cannot be written: {error.strerror}; no reply is lost: fix this, then {again}, or choose another folder: {again} --out FOLDER"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def is_same_tree(one: Path, other: Path) -> bool:
    """Check whether two folders hold the same files with the same bytes. Leftovers such as bytecode are passed over."""
    files = [list_files(top) for top in (one, other)]
    if files[0] != files[1]:
        return False
    _, different, unread = filecmp.cmpfiles(one, other, files[0], shallow=False)
    return not different and not unread


def list_files(top: Path) -> list[str]:
    paths = [path.relative_to(top) for path in top.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if not any(map(is_leftover, path.parts)))


def refuse_unusable(out: Path) -> None:
    """Raise `UserError` unless the packs can be written to `out`. It tries by making and removing a temporary folder next to it."""
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    try:
        Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.", dir=parent)).rmdir()
    except OSError:
        raise UserError(
            f"{out} cannot be made: {parent} is not a folder that can be written to; choose another --out"
        ) from None
