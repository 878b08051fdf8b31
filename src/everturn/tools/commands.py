"""Judges the simple commands of a shell line: hard rules, what asks, what may simply run."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path, PurePosixPath

from everturn.tools.judging import Concern, Judgement, Surroundings, one_line
from everturn.tools.shell import Parsed, Redirect, Simple, Word, parse


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs that only read and print, whatever their options, as long as their files are in the workspace.
_READERS = _words(
    "[ basename cat cksum cmp comm cut diff dirname du echo egrep expand false fgrep fold grep head "
    "id join ls md5sum nl od paste printf pwd rev seq sha1sum sha256sum sha512sum stat strings tac tail test "
    "tr true type uname wc whoami"
)
# What only the shell itself knows. Not free without a sandbox: after a cd, every path means another file.
_BUILTINS = _words(
    ": break cd continue declare exit export local popd pushd read readonly return set shift unset wait"
)
# Programs that change only the files they are told to.
_LOCAL = _words("cp install ln mkdir mktemp mv rm rmdir sed sort tee touch tree uniq xxd")
_NETWORK = _words(
    "apt apt-get aria2c aws az brew cargo composer conda curl dig docker dnf doctl fetch ftp gcloud gem gh "
    "go gsutil helm host http https irssi kubectl lftp links lynx mail mosh mutt nc ncat netcat nix nmap npm "
    "npx nslookup pacman ping pip pip3 pipx pnpm podman poetry psql rclone rsync s3cmd scp sendmail sftp "
    "socat ssh ssh-copy-id swaks telnet terraform traceroute uv uvx w3m wget whois yarn yum zypper"
)
_INTERPRETERS = _words(
    ". awk bash bun bunx deno gawk lua node npx osascript perl php pipx python python3 ruby sh source "
    "tclsh uvx zsh"
)
_GIT_NETWORK = _words("clone fetch pull push ls-remote remote submodule send-email request-pull")
_ENDS_MACHINE = _words("shutdown reboot halt poweroff kexec")
_BREAKS_DISK = re.compile(r"^(mkfs(\..+)?|mke2fs|wipefs|blkdiscard|sgdisk|sfdisk|fdisk|parted|cryptsetup)$")
_DEVICE = re.compile(r"^/dev/(sd|hd|vd|xvd|nvme|mmcblk|mapper/|dm-|md|loop|disk|mem|kmem|port)")
_METADATA = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|fd00:ec2::254|100\.100\.100\.200", re.I
)
_FORK_BOMB = re.compile(r"([\w:.]{1,20})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&")
_SYSTEM_FOLDERS = _words(
    "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /srv /sys /usr /var"
)
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"))


def judge_command(text: str, around: Surroundings) -> Judgement:
    """What the policy should know about a shell line."""
    label = one_line(text)
    parsed = parse(text)
    denied = _denied(text, parsed, around)
    if denied:
        return Judgement(label=label, denied=denied)
    concerns = [_opaque(reason, around) for reason in parsed.opaque]
    for command in parsed.commands:
        concern = _sandboxed(command, around) if around.is_sandboxed else _bare(command, parsed, around)
        if concern is not None:
            concerns.append(concern)
    concerns += [
        _redirected(redirect, around) for redirect in parsed.redirects if _reaches_out(redirect, around)
    ]
    if not parsed.commands and not concerns:
        concerns = [Concern("there is no command in it that could be judged")]
    return Judgement(label=label, concerns=tuple(dict.fromkeys(concerns)))


# --- hard rules ------------------------------------------------------------------------------------


def _denied(text: str, parsed: Parsed, around: Surroundings) -> str:
    """Why nothing can allow this; empty if no hard rule speaks against it."""
    if _FORK_BOMB.search(text):
        return "It starts itself without end."
    if _METADATA.search(text):
        return "It asks the cloud's metadata service, which hands out keys."
    if _names_data(text, around):
        return "It touches Everturn's data folder, where its keys and its database are."
    for redirect in parsed.redirects:
        if redirect.is_write and _DEVICE.match(redirect.target.text):
            return f"It writes to the device {redirect.target.text}."
    for command in parsed.commands:
        reason = _command_denied(command)
        if reason:
            return reason
    return ""


def _command_denied(command: Simple) -> str:
    name, arguments = command.name, command.arguments
    if name in _ENDS_MACHINE or (name in ("init", "telinit") and arguments[:1] in (("0",), ("6",))):
        return f"It ends or restarts the machine ({name})."
    if name == "systemctl" and any(
        word in (*_ENDS_MACHINE, "kexec", "emergency", "rescue") for word in arguments
    ):
        return "It ends or restarts the machine (systemctl)."
    if _BREAKS_DISK.match(name):
        return f"It rewrites disks ({name})."
    if name in ("dd", "tee", "cp", "shred", "cat", "mv") and any(
        _DEVICE.match(word.removeprefix("of=")) for word in arguments
    ):
        return f"It writes to a device ({name})."
    if name in ("rm", "chmod", "chown", "chgrp") and _is_recursive(command):
        for word in arguments:
            if _is_system(word):
                return f"{name} would go through {word} and everything below it."
    if (
        name == "find"
        and {"-delete", "rm", "/bin/rm"}.intersection(arguments)
        and any(_is_system(word) for word in arguments)
    ):
        return "find would delete a system folder."
    return ""


def _is_recursive(command: Simple) -> bool:
    return any(
        word in ("--recursive", "--no-preserve-root") or re.match(r"^-[a-zA-Z]*[rR]", word)
        for word in command.arguments
    )


def _is_system(word: str) -> bool:
    """Root, home, or a folder directly below root; also with a star or a slash behind it."""
    bare = word.replace('"', "").replace("'", "")
    if re.match(r"^(~[\w-]*|\$\{?HOME\}?)(/?\.?\*?)$", bare):
        return True
    if not bare.startswith("/"):
        return False
    return os.path.normpath(re.sub(r"/\.?\*$", "/", bare)).replace("//", "/") in _SYSTEM_FOLDERS


def _names_data(text: str, around: Surroundings) -> bool:
    """Is the data folder named, other than as the way to the workspace?"""
    if around.is_sandboxed:
        return False  # it is not there
    rest = text.replace(str(around.workspace), "")
    names = {str(around.home), str(around.home.resolve()), "$EVERTURN_HOME", "${EVERTURN_HOME}"}
    if around.home.is_relative_to(Path.home()):
        names |= {f"{mark}/{around.home.relative_to(Path.home())}" for mark in ("~", "$HOME", "${HOME}")}
    return any(re.search(re.escape(name) + r"(?![\w.-])", rest) for name in names)


# --- what asks -------------------------------------------------------------------------------------


def _opaque(reason: str, around: Surroundings) -> Concern:
    can_send = not around.is_sandboxed or around.has_network
    return Concern(reason, sends=can_send, is_outside=not around.is_sandboxed, is_opaque=True)


def _sandboxed(command: Simple, around: Surroundings) -> Concern | None:
    """Inside the sandbox only three things matter: losing work, the network, and meaning to be root."""
    name = command.name
    if "sudo" in command.through or name in ("sudo", "doas", "su", "pkexec"):
        return Concern(f"it uses {name if not command.through else 'sudo'}", key=_exact(command))
    if reason := _loses_work(command):
        return Concern(reason, key=_exact(command), sends=around.has_network and _sends(command))
    if around.has_network and not (name in _READERS | _LOCAL | _BUILTINS or _is_local_git(command)):
        reason = "it reaches the network" if _sends(command) else "it could reach the network"
        return Concern(f"{reason} ({name})", key=_family(command), sends=True)
    return None


def _loses_work(command: Simple) -> str:
    name, arguments = command.name, command.arguments
    if name == "rm" and (_is_recursive(command) or "xargs" in command.through or "find" in command.through):
        is_scratch = all(word.startswith(("-", "/tmp/")) and ".." not in word for word in arguments)  # noqa: S108
        if not (is_scratch and arguments) or command.through:
            return "it deletes whole folders"
    if name in ("shred", "truncate"):
        return f"it destroys content ({name})"
    if name == "find" and "-delete" in arguments:
        return "it deletes what it finds"
    if name == "dd":
        return "it copies raw data (dd)"
    if name == "git":
        return _git_loses_work(arguments)
    return ""


def _git_loses_work(arguments: tuple[str, ...]) -> str:
    verb, rest = _git_verb(arguments)
    if verb == "push":
        return "it pushes to a remote"
    if verb == "reset" and "--hard" in rest:
        return "it throws away uncommitted work (git reset --hard)"
    if verb == "clean" and any(re.match(r"^-[a-zA-Z]*f|^--force", word) for word in rest):
        return "it deletes files that git does not know (git clean)"
    if verb in ("checkout", "restore") and ("." in rest or "--" in rest or "-f" in rest):
        return f"it throws away uncommitted work (git {verb})"
    if verb == "stash" and rest[:1] in (("drop",), ("clear",)):
        return "it throws away stashed work"
    if verb == "branch" and any(word in ("-D", "--delete") for word in rest):
        return "it deletes a branch"
    if verb in ("filter-branch", "filter-repo", "update-ref", "gc", "reflog"):
        return f"it rewrites history (git {verb})"
    return ""


def _bare(command: Simple, parsed: Parsed, around: Surroundings) -> Concern | None:
    """Without a sandbox everything asks, except reading inside the workspace."""
    if _is_reading(command, parsed, around):
        return None
    is_inside = all(_is_inside(word, around) for word in command.words[1:])
    is_local = is_inside and (command.name in _LOCAL or _is_local_git(command))
    loses = _loses_work(command)
    root = next((name for name in (*command.through, command.name) if name in ("sudo", "doas", "su")), "")
    reason = loses or (f"it uses {root}" if root else f"it runs without a sandbox ({command.name})")
    key = _exact(command) if loses or root else _family(command)
    return Concern(reason, key=key, sends=not is_local, is_outside=not is_local)


def _is_reading(command: Simple, parsed: Parsed, around: Surroundings) -> bool:
    if command.name not in _READERS or command.through or command.has_assignments or parsed.has_assignments:
        return False
    if command.words[0].text != command.name and not command.words[0].text.startswith("/"):
        return False
    return all(_is_inside(word, around) for word in command.words[1:])


def _is_inside(word: Word, around: Surroundings) -> bool:
    """Surely no path that leads out of the workspace, links included."""
    text = word.text.rpartition("=")[2] if word.text.startswith("-") else word.text
    if not word.is_fixed or any(char in text for char in "*?["):
        return False
    if text.startswith("-"):
        return "/" not in text and ".." not in text
    if text.startswith("~") or ".." in PurePosixPath(text).parts:
        return False
    return Path(os.path.realpath(around.workspace / text)).is_relative_to(os.path.realpath(around.workspace))


def _reaches_out(redirect: Redirect, around: Surroundings) -> bool:
    if redirect.target.text in _HARMLESS_TARGETS:
        return False
    if around.is_sandboxed:
        return False  # only the workspace and /tmp can be written, only they and the system be read
    return redirect.is_write or not _is_inside(redirect.target, around)


def _redirected(redirect: Redirect, around: Surroundings) -> Concern:
    target = redirect.target.text
    verb = "writes to" if redirect.is_write else "reads"
    is_outside = redirect.is_write and not _is_inside(redirect.target, around)
    return Concern(f"it {verb} {target}", key=f"redirect {verb} {target}", is_outside=is_outside)


# --- what "always" would cover ---------------------------------------------------------------------


def _exact(command: Simple) -> str:
    """This command and no other. With a computed word there is no such thing: it changes its meaning."""
    if not all(word.is_fixed for word in command.words):
        return ""
    return "run exactly " + shlex.join((*command.through, *(word.text for word in command.words)))


def _family(command: Simple) -> str:
    """The program and its verb: ``git commit``, ``npm test``, ``restic check``; or just ``make``."""
    verb = command.arguments[0] if command.arguments else ""
    if command.name == "git":
        verb = _git_verb(command.arguments)[0]
    if command.name in _INTERPRETERS or (command.name == "git" and not _is_plain_git(command)):
        return _exact(command)  # the arguments are the program: one of them says nothing of the next
    words = [*command.through, command.name]
    if re.match(r"^[a-z][a-z0-9:_-]*$", verb):
        words.append(verb)
    return "run " + " ".join(words)


def _git_verb(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in ("-C", "-c", "--git-dir", "--work-tree") else 1
    return (arguments[at], arguments[at + 1 :]) if at < len(arguments) else ("", ())


def _is_plain_git(command: Simple) -> bool:
    """No option by which git is told to run something else."""
    return not any(word.startswith(("-c", "--config", "--exec")) for word in command.arguments)


def _is_local_git(command: Simple) -> bool:
    if command.name != "git":
        return False
    return _is_plain_git(command) and _git_verb(command.arguments)[0] not in _GIT_NETWORK


def _sends(command: Simple) -> bool:
    if command.name == "git":
        return _git_verb(command.arguments)[0] in _GIT_NETWORK
    return command.name in _NETWORK
