"""A Linux shell as a world, with tasks in the format of AgentBench's OS suite: copied into each such pack as `tools.py`.

The whole root of the sandbox can be written to, and its processes are root of their own. Each command runs in a new bash that
starts where the last one ended: folder, variables, functions and aliases are kept as text beside the files, so a state can be
laid out again; what runs in the background stays as long as the episode. A task's `init` scripts and `start` command are run
at the start. Checks run in a fresh sandbox that was started the same way and then got the episode's files. Their scripts are
run by the system's own interpreters, in an environment where the system's programs come before those that the agent wrote.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from simia.kit import FileTools, ToolError, system_program, write

MOST, SHOWN = 800, 780  # characters of an output, and what is shown of a longer one
LIMIT = 8.0  # seconds that a command may run in the foreground
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LANGUAGES = {"bash": ["bash", "-c"], "sh": ["sh", "-c"], "python": ["python3", "-I", "-c"]}
FOLDERS = ("root", "home", "etc", "var/log", "var/tmp", "opt", "srv", "mnt", "run")
PASSWD = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nadm:x:4:\nsudo:x:27:\nusers:x:100:\nnogroup:x:65534:\n"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x07")
# Bash itself writes down what a command leaves behind. What it had before is not written: the next one has it too.
SHELL = r"""
export -n __kept __command __cwd
__had=" $(compgen -v | tr '\n' ' ') "
[ -s "$__kept" ] && . "$__kept" 2> /dev/null
cd "$__cwd" 2> /dev/null || cd /
__save() {
  { declare -p PATH HOME IFS 2> /dev/null
    for __name in $(compgen -v); do
      case "$__had $__name " in *" $__name "*" $__name "*) ;; *) case "$__name" in
        __*|BASH_*|FUNCNAME|PIPESTATUS|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH*|OLDPWD|PWD|COLUMNS|LINES|_) ;;
        *) declare -p "$__name" 2> /dev/null;; esac;; esac
    done
    declare -f | sed '/^__save ()/,/^}/d'
    alias -p; } > "$__kept.new"
  pwd > "$__kept.cwd"; mv "$__kept.new" "$__kept"
}
shopt -s expand_aliases
trap __save EXIT
. "$__command"
"""


class Shell(FileTools):
    """One machine. `memory`: folder and definitions of the shell, and the agent's answer."""

    def start(self, given: dict[str, Any]) -> None:
        """`init`: scripts, each in a process of its own; one that fails fails the episode's start. `start`: a command that may
        leave programs running."""
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name, text in (("passwd", PASSWD), ("group", GROUP)):
            path = self.root / "etc" / name
            if not path.exists():
                path.write_text(text)
        self.memory.update(cwd=str(self.root), kept="")
        for number, script in enumerate(given.get("init", []), start=1):
            done = self._run_script(self._seed_random(script))
            if done.returncode:
                words = done.stderr.decode(errors="replace").strip()[-200:]
                raise ValueError(f"init script {number} ended with {done.returncode}: {words}")
        if "start" in given:
            self._run_in_shell(given["start"]["code"])

    @write
    def bash_action(self, script: str) -> str:
        """Run a script of bash. What it prints comes back."""
        text = ESCAPES.sub("", self._run_in_shell(script))
        if len(text) > MOST:
            text = text[:SHOWN] + "\n[truncated because the output is too long]"
        return f"The output of the OS:\n\n{text}" if text else "The output of the OS is empty."

    @write
    def answer_action(self, answer: str) -> str:
        """The answer to the question. It ends the episode."""
        self.memory["answer"] = answer
        self.finish()
        return "The answer was noted."

    @write
    def finish_action(self, thought: str = "") -> str:
        """Nothing is left to be done. It ends the episode."""
        self.memory["finished"] = True
        self.finish()
        return "The end was noted."

    def check_answer(self, answer: str | None = None, regex: str | None = None, strip: bool = True) -> bool:
        """What was answered equals this, or matches the expression."""
        given = self.memory.get("answer")
        if not isinstance(given, str):
            return False
        given = given.strip() if strip else given
        return given == answer if answer is not None else re.search(regex or "(?!)", given) is not None

    def check_scripts(self, scripts: list[dict[str, str] | None], example: dict[str, str] | None = None) -> bool:
        """Each script gets the answer and what those before it printed, and must end with 0. None: the example's place.

        Without an end of the agent's own (`answer_action` or `finish_action`) nothing is judged, as in AgentBench.
        """
        if "answer" not in self.memory and not self.memory.get("finished"):
            return False
        given = [str(self.memory.get("answer"))]
        before = list_processes()
        for each in scripts:
            script = each or example
            if script is None:
                raise ValueError("the checks want an example, and there is none")
            done = self._run_script(script, *given)
            if self.root == Path(
                "/"
            ):  # in a sandbox: a program of the agent that the script ran must not meddle with the next
                kill_processes(list_processes() - before)
            if done.returncode:
                return False
            given.append(done.stdout.decode(errors="replace"))
        return True

    def _seed_random(self, script: dict[str, str]) -> dict[str, str]:
        """The script with bash's `$RANDOM` started from the episode's seed: the same machine each time."""
        if script.get("language", "bash") != "bash":
            return script
        return {**script, "code": f"RANDOM={self.random.randrange(1, 32768)}\n{script['code']}"}

    def _run_script(self, script: dict[str, str], *given: str) -> subprocess.CompletedProcess[bytes]:
        """A script apart from the agent's shell."""
        language = script.get("language", "bash")
        if language not in LANGUAGES:
            raise ValueError(f"a script in {language!r} cannot be run: there are {', '.join(LANGUAGES)}")
        program, *options = LANGUAGES[language]
        command = [system_program(program), *options, script["code"]]
        command += [*(["--"] if given and language != "python" else []), *given]
        # Not pipes, which what runs on would hold open; and no names, by which it could write into them.
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryFile(dir=room) as out, tempfile.TemporaryFile(dir=room) as err:
            # AgentBench's scripts speak of files in the home.
            environment = {**self.system_environment(), "HOME": self._environment()["HOME"]}
            code = run_to_end(command, str(self.root), environment, out.fileno(), err.fileno())
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read())
        return subprocess.CompletedProcess(command, 124 if code is None else code, *texts)

    def _run_in_shell(self, script: str) -> str:
        """A command of the agent's shell: what it printed, both streams as they came."""
        if "\0" in script:
            raise ToolError("a script cannot hold a NUL")
        room = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else self.root
        kept, command, out = (room / f"shell.{os.getpid()}.{name}" for name in ("kept", "command", "out"))
        kept.write_text(self.memory["kept"])
        command.write_text(script + "\n")
        given = {"__kept": str(kept), "__command": str(command), "__cwd": str(self.memory["cwd"])}
        try:
            with out.open("wb") as stream:
                line = ["/bin/bash", "--norc", "--noprofile", "-c", SHELL, "bash"]
                code = run_to_end(line, "/", {**self._environment(), **given}, stream.fileno(), stream.fileno())
            with out.open("rb") as stream:
                text = stream.read(4 * MOST * 4).decode(errors="replace").replace("\r\n", "\n")
            if code is None:
                return f"{text}\n[stopped: it did not end within {LIMIT:g} seconds]".strip()
            place = Path(f"{kept}.cwd")
            if place.exists():
                self.memory.update(cwd=place.read_text().rstrip("\n"), kept=kept.read_text(errors="replace"))
            return text
        finally:
            for path in (kept, command, out, Path(f"{kept}.cwd"), Path(f"{kept}.new")):
                path.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        home = "/root" if self.root == Path("/") else str(self.root)
        return {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", "USER": "root"}


def list_processes() -> set[int]:
    """Those of the sandbox, where it shows them."""
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


def kill_processes(pids: set[int]) -> None:
    for pid in pids - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def run_to_end(command: list[str], where: str, environment: dict[str, str], out: int, err: int) -> int | None:
    """Run it to its end; the exit code, or None where it was stopped. What it left running in the background runs on."""
    process = subprocess.Popen(
        command, cwd=where, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
    )
    deadline = time.monotonic() + LIMIT
    pause = 0.0005
    while process.poll() is None:
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return process.returncode
