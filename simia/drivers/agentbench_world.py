"""The world of a Linux shell, with tasks in the format of AgentBench's OS suite. It is copied into packs as `tools.py`.

The whole root of the sandbox is writable, and its processes run as root in their namespace. Each command runs in a new bash
that continues where the last one ended: folder, variables, functions and aliases are stored as text, so that a state can be
restored. Background processes run until the episode ends. A task's `init` scripts and `start` command run at the start.
Checks run in a fresh sandbox that is started in the same way and then gets the episode's files. The system's interpreters run
their scripts, in an environment where the system's programs come before those that the agent wrote.
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

from simia.kit import FileTools, ToolError, kill_processes, list_processes, system_program, write

MOST, SHOWN = 800, 780  # largest output in characters, and the part of a larger one that is shown
LIMIT = 8.0  # seconds that a command may run in the foreground
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LANGUAGES = {"bash": ["bash", "-c"], "sh": ["sh", "-c"], "python": ["python3", "-I", "-c"]}
# What a fresh container of Debian or Ubuntu has, as far as its programs read or list it.
FOLDERS = (
    "root", "home", "opt", "srv", "mnt", "media", "run/lock", "var/tmp", "var/backups", "var/cache/apt", "var/lib/dpkg", "var/local",
    "var/log/apt", "var/mail", "var/spool/cron/crontabs", "etc/cron.d", "etc/cron.daily", "etc/cron.hourly", "etc/cron.weekly",
    "etc/default", "etc/init.d", "etc/skel", "etc/profile.d", "etc/systemd/system",
)  # fmt: skip
USERS = (
    "root:0:0:/root daemon:1:1:/usr/sbin bin:2:2:/bin sys:3:3:/dev sync:4:65534:/bin games:5:60:/usr/games man:6:12:/var/cache/man "
    "lp:7:7:/var/spool/lpd mail:8:8:/var/mail news:9:9:/var/spool/news uucp:10:10:/var/spool/uucp proxy:13:13:/bin "
    "www-data:33:33:/var/www backup:34:34:/var/backups list:38:38:/var/list irc:39:39:/run/ircd _apt:100:65534:/nonexistent "
    "nobody:65534:65534:/nonexistent"
)
GROUPS = (
    "root:0 daemon:1 bin:2 sys:3 adm:4 tty:5 disk:6 lp:7 mail:8 news:9 uucp:10 man:12 proxy:13 kmem:15 dialout:20 fax:21 voice:22 "
    "cdrom:24 floppy:25 tape:26 sudo:27 audio:29 dip:30 www-data:33 backup:34 operator:37 list:38 irc:39 src:40 shadow:42 utmp:43 "
    "video:44 sasl:45 plugdev:46 staff:50 games:60 users:100 nogroup:65534"
)
SHELLS = {"root": "/bin/bash", "sync": "/bin/sync"}  # of users who may log in
BASHRC = (
    "# ~/.bashrc: read by interactive shells.\n[ -z \"$PS1\" ] && return\nHISTCONTROL=ignoreboth\nalias ll='ls -l'\n"
)
PROFILE = "# ~/.profile: read by login shells.\nif [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n"
FILES = {
    "root/.bashrc": BASHRC, "root/.profile": PROFILE, "etc/hostname": "sandbox\n", "etc/hosts": "127.0.0.1\tlocalhost\n127.0.1.1\tsandbox\n", "etc/resolv.conf": "",
    "etc/shells": "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n", "etc/issue": "Linux \\n \\l\n", "etc/fstab": "",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n", "etc/timezone": "Etc/UTC\n",
    "etc/environment": 'PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n', "etc/debian_version": "12.0\n",
    "etc/login.defs": "UID_MIN 1000\nUID_MAX 60000\nGID_MIN 1000\nGID_MAX 60000\nUMASK 022\nUSERGROUPS_ENAB yes\nENCRYPT_METHOD SHA512\n",
    "etc/crontab": "SHELL=/bin/sh\n17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n",
    "etc/default/useradd": "SHELL=/bin/sh\n", "etc/profile": "# /etc/profile: read by login shells.\n", "etc/bash.bashrc": "",
    "var/log/dpkg.log": "2025-01-01 00:00:00 startup archives install\n", "var/log/alternatives.log": "", "var/log/wtmp": "",
    "var/log/btmp": "", "var/log/lastlog": "", "var/log/faillog": "", "var/log/apt/history.log": "", "var/lib/dpkg/status": "",
    "etc/passwd": "".join(
        f"{name}:x:{uid}:{gid}:{name}:{home}:{SHELLS.get(name, '/usr/sbin/nologin')}\n"
        for name, uid, gid, home in (row.split(":") for row in USERS.split())
    ),
    "etc/shadow": "".join(f"{row.split(':')[0]}:*:19000:0:99999:7:::\n" for row in USERS.split()),
    "etc/group": "".join(f"{name}:x:{gid}:\n" for name, gid in (row.split(":") for row in GROUPS.split())),
    "etc/gshadow": "".join(f"{row.split(':')[0]}:*::\n" for row in GROUPS.split()),
}  # fmt: skip
PRIVATE = ("etc/shadow", "etc/gshadow")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x07")
RUN = 'eval "$__shell"'  # the script below is not on a command line, which `ps` shows
# Bash saves what a command defines, without what was defined before: the next shell has that as well.
SHELL = r"""
export -n __kept __command __cwd __shell
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
    """One machine. `memory` holds the folder and definitions of the shell, and the agent's answer."""

    def start(self, given: dict[str, Any]) -> None:
        """Run the `init` scripts, each in its own process, and the `start` command, which may leave programs running.

        Raises `ValueError` for an `init` script that fails.
        """
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            path = self.root / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                path.chmod(0o640 if name in PRIVATE else 0o644)
        if not os.path.lexists(release := self.root / "etc/os-release"):
            release.symlink_to("/usr/lib/os-release")
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
        """Check that the answer equals `answer` or matches `regex`."""
        given = self.memory.get("answer")
        if not isinstance(given, str):
            return False
        given = given.strip() if strip else given
        return given == answer if answer is not None else re.search(regex or "(?!)", given) is not None

    def check_scripts(self, scripts: list[dict[str, str] | None], example: dict[str, str] | None = None) -> bool:
        """Run scripts that each get the answer and the outputs of the previous scripts, and must exit with 0. None: run `example`.

        False if the agent did not end the episode (`answer_action` or `finish_action`), as in AgentBench.
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
            if self.root == Path("/"):  # in a sandbox: an agent's program that the script ran must not affect the next
                kill_processes(list_processes() - before)
            if done.returncode:
                return False
            given.append(done.stdout.decode(errors="replace"))
        return True

    def _seed_random(self, script: dict[str, str]) -> dict[str, str]:
        """Seed bash's `$RANDOM` from the episode's seed, so that each episode starts from the same machine."""
        if script.get("language", "bash") != "bash":
            return script
        return {**script, "code": f"RANDOM={self.random.randrange(1, 32768)}\n{script['code']}"}

    def _run_script(self, script: dict[str, str], *given: str) -> subprocess.CompletedProcess[bytes]:
        """Run a script outside of the agent's shell."""
        language = script.get("language", "bash")
        if language not in LANGUAGES:
            raise ValueError(f"a script in {language!r} cannot be run: there are {', '.join(LANGUAGES)}")
        program, *options = LANGUAGES[language]
        command = [system_program(program), *options, script["code"]]
        command += [*(["--"] if given and language != "python" else []), *given]
        # No pipes, which background processes would keep open; and unnamed files, so that they cannot be opened by path.
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
            # AgentBench's scripts refer to files in the home folder.
            environment = {**self.system_environment(), "HOME": self._environment()["HOME"]}
            code = run_to_end(command, str(self.root), environment, out.fileno(), err.fileno())
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, 124 if code is None else code, out.read(), err.read())

    def _run_in_shell(self, script: str) -> str:
        """Run a command in the agent's shell and return its output, both streams interleaved."""
        if "\0" in script:
            raise ToolError("a script cannot hold a NUL")
        folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else self.root
        kept, command, out = (folder / f"shell.{os.getpid()}.{name}" for name in ("kept", "command", "out"))
        kept.write_text(self.memory["kept"])
        command.write_text(script + "\n")
        given = {"__kept": str(kept), "__command": str(command), "__cwd": str(self.memory["cwd"]), "__shell": SHELL}
        try:
            with out.open("wb") as stream:
                environment = {**self._environment(), **given}
                line = ["/bin/bash", "--norc", "--noprofile", "-c", RUN, "bash"]
                code = run_to_end(line, "/", environment, stream.fileno(), stream.fileno())
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


def run_to_end(command: list[str], where: str, environment: dict[str, str], out: int, err: int) -> int | None:
    """Run a command and return its exit code, or None if it was stopped at the limit. Its background processes keep running."""
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
