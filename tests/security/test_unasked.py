"""Without a sandbox: nothing writes, runs or reads outside the workspace before the person was asked.

Every line is judged, and one that would be allowed is really run, so that a failure shows what it did.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.domain.tool import Verdict
from everturn.tools.policy.commands import judge_command
from everturn.tools.policy.judgement import CallContext
from everturn.tools.terminal.terminal_tools import shell_program
from tests.unit.tools.kit import Kit

pytestmark = pytest.mark.anyio
SECRET = "the-bait-4711"


@pytest.fixture
def outside(bare_kit: Kit, tmp_path: Path) -> Path:
    """A folder beside the workspace with a secret, and links to both in the workspace."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET + "\n")
    space = bare_kit.workspace
    (space / "a.txt").write_text("alpha\nbeta\n")
    (space / "sub").mkdir()
    (space / "sub" / "b.txt").write_text("alpha\n")
    (space / "sub" / "secret").symlink_to(folder / "secret")
    (space / "other").mkdir()
    (space / "other" / "secret").write_text("x\n")
    (space / "way").symlink_to(folder)
    (space / "names").write_text(f"{folder}/secret\0")
    (space / "sums").write_text(f"d41d8cd98f00b204e9800998ecf8427e  {folder}/secret\n")
    for name in ("cat", "evil"):
        (space / name).write_text("#!/bin/sh\ntouch ran\n")
        (space / name).chmod(0o755)
    return folder


# Code where no command stands: arithmetic, subscripts, prompts, names.
RUNS = r"""
[[ 'a[$(id > ran)]' -eq 0 ]]; ls
[[ -v 'a[$(id > ran)]' ]]; ls
[[ 'a[$(id > ran)]' -lt 1 ]] && ls
[ -v 'a[$(id > ran)]' ]; ls
[ 'a[$(id > ran)]' -eq 0 ]; ls
test -v 'a[$(id > ran)]'; ls
test 'a[$(id > ran)]' -eq 0
declare -i 'x=a[$(id > ran)]'; ls
declare 'a[$(id > ran)]=1'; ls
typeset -i 'x=a[$(id > ran)]'; ls
local -i x; ls
export 'a[$(id > ran)]=1'; ls
readonly 'a[$(id > ran)]=1'
(( 'a[$(id > ran)]' )); ls
((a[$(id > ran)])); ls
echo $(( a[$(id > ran)] ))
echo $[ a[$(id > ran)] ]
let 'a[$(id > ran)]=1'; ls
for ((i=a[$(id > ran)];i<1;i++)); do ls; done
f() { [[ 'a[$(id > ran)]' -eq 0 ]]; }; f; ls
function f { (( 'a[$(id > ran)]' )); }; f; ls
printf -v 'a[$(id > ran)]' x; ls
printf '%d' 'a[$(id > ran)]' -v x
read 'a[$(id > ran)]' < a.txt; ls
mapfile 'a[$(id > ran)]' < a.txt; ls
unset 'a[$(id > ran)]'; ls
wait -n -p 'a[$(id > ran)]'; ls
getopts x 'a[$(id > ran)]'; ls
x='$(id > ran)'; echo ${x@P}; ls
echo ${x:-$(id > ran)}
echo ${a[$(id > ran)]}
echo "${x:=`id > ran`}"
echo "$(id > ran)"
echo `id > ran`
echo <(id > ran)
cat < <(id > ran)
cat <<< "$(id > ran)"
cat <<EOF
$(id > ran)
EOF
coproc id > ran
time id > ran
case $(id > ran) in x) ls;; esac
case x in $(id > ran)) ls;; esac
select x in $(id > ran); do ls; done
if [[ 'a[$(id > ran)]' -eq 0 ]]; then ls; fi
while (( 'a[$(id > ran)]' )); do ls; done
! (( 'a[$(id > ran)]' ))
{ id > ran; }
( id > ran )
PROMPT_COMMAND='id > ran' ls
PS4='$(id > ran)' bash -xc ls
BASH_ENV=evil bash -c ls
IFS=x ls
LD_PRELOAD=./evil ls
PATH=. cat a.txt
PATH=.:$PATH; cat a.txt
hash -p ./evil ls; ls
enable -f ./evil ls; ls
alias ls=./evil; ls
shopt -s expand_aliases
set -o allexport; ls
trap 'id > ran' EXIT; ls
trap 'id > ran' DEBUG; ls
exec ./evil
eval 'id > ran'
source ./evil
. ./evil
./cat a.txt
ls; ./evil
ls | ./evil
ls && ./evil
ls & ./evil
ls |& ./evil
ls
./evil
echo x > ran
echo x >> ran
echo x >| ran
echo x &> ran
echo x >& ran
echo x 2> ran
ls <> ran
ls {fd}> ran
cat a.txt | tee ran
cat a.txt | xargs ./evil
find . -exec ./evil ;
find . -maxdepth 0 -fprintf ran x
find . -maxdepth 0 -fls ran
find . -delete
sort -o ran a.txt
sort --compress-program=./evil a.txt
uniq a.txt ran
sed '1e ./evil' a.txt
sed 'w ran' a.txt
sed -n 'w ran' a.txt
awk 'BEGIN { system("./evil") }'
awk '{ print > "ran" }' a.txt
diff -l a.txt sub/b.txt
less a.txt
more a.txt
man -P ./evil ls
git status
git log --output=ran
git -c core.fsmonitor=./evil status
git diff --ext-diff
git grep --open-files-in-pager=./evil alpha
tar cf ran a.txt
tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=./evil a.txt
dd if=a.txt of=ran
cp a.txt ran
xxd a.txt ran
split a.txt ran
csplit a.txt 1
tree -o ran
env ./evil
nice ./evil
nohup ./evil
command ./evil
builtin eval 'id > ran'
busybox sh -c 'id > ran'
date -s 2020-01-01
strings -T evil a.txt
file -C -m a.txt
shuf -o ran a.txt
ptx -o ran a.txt
column a.txt
hexdump a.txt
base64 a.txt
kill -9 1
ls \
./evil
echo \"; id > ran; echo \"
echo 'x'"'"; id > ran; echo "'"
"""

READS = r"""
cat {/etc/passwd,x}
cat OUTSIDE/secret
cat {OUTSIDE/secret,x}
cat a{.txt,/../../../outside/secret}
cat x{1..3}
cat way/secret
cat sub/secret
cat sub/*
cat s*/secret
cat ./?ub/secret
cat [s]ub/secret
cat sub/secre[t]
cat */secret
cat ~/x
cat ~root/.bashrc
cat a=~/x
cat ../../secrets.toml
cat sub/../way/secret
cat 'sub/secret'
cat "sub"/secret
cat su"b/secre"t
cat sub/secret a.txt
cat $HOME/x
cat $'way/secret'
cat $"way/secret"
cat -- way/secret
cat - < way/secret
cat < way/secret
cat 0< sub/secret
head -n1 way/secret
head -5 sub/secret
tail -f a.txt
tail --pid=1 -f a.txt
grep -R bait .
grep -r bait .
grep -rn bait sub
grep --recursive bait .
grep --dereference-recursive bait .
grep -d recurse bait .
grep --directories=recurse bait .
grep < a.txt -R bait .
grep 2>&1 -R bait .
< a.txt grep -R bait .
grep -c 2>/dev/null -R bait .
ls && grep < a.txt -R bait .
ls | grep 2>&1 -R bait .
diff < a.txt sub other
wc < a.txt --files0-from=names
tail < a.txt -f a.txt
grep <&- -R bait .
grep >&- -R bait .
grep -f way/secret a.txt
grep -fsub/secret a.txt
grep --file=sub/secret a.txt
grep bait sub/*
grep bait sub/secret
egrep -R bait .
fgrep -rn bait .
diff sub other
diff -r sub other
diff other sub
diff --recursive sub other
diff -q sub other
diff other/secret sub
diff sub other/secret
diff --from-file=sub/secret a.txt
diff --to-file=sub/secret a.txt
ls way/
ls -L way
ls -lL sub
ls -R way/
ls /etc
ls ..
ls -la ~
stat way/secret
stat -L way
stat /etc/passwd
wc --files0-from=names
wc --files0-from names
wc way/secret
md5sum -c sums
md5sum --check sums
sha256sum -c sums
md5sum sub/secret
cksum way/secret
cut -c1- sub/secret
od -c way/secret
nl sub/secret
paste a.txt sub/secret
comm a.txt sub/secret
cmp a.txt sub/secret
tac way/secret
rev way/secret
strings @names
du -L sub
find . -follow -name secret
find -L . -name secret
cd way; cat secret
cd way && ls
cd sub && cat secret
pushd way; cat secret
CDPATH=.. cd outside; cat secret
xargs -0 cat < names
cat `cat names`
cat $(cat names)
cat /proc/self/environ
cat /dev/tcp/127.0.0.1/1
cat < /dev/tcp/127.0.0.1/1
echo x > /dev/tcp/127.0.0.1/1
ls -la /proc/self/root/
cat sub/secret\
"""


def lines(text: str) -> list[str]:
    """One attack per line. A here-document, or a line that goes on, is one attack of several lines."""
    found: list[str] = []
    for line in text.strip("\n").split("\n"):
        last = found[-1] if found else ""
        is_open = "<<EOF" in last and not last.endswith("\nEOF")
        if is_open or last.endswith("\\") or line == "./evil":
            found[-1] = f"{last}\n{line}"
        else:
            found.append(line)
    return found


@pytest.mark.parametrize("command", [*lines(RUNS), *lines(READS)])
async def test_what_runs_writes_or_reads_outside_is_asked_about(
    bare_kit: Kit, outside: Path, command: str
) -> None:
    command = command.replace("OUTSIDE", str(outside))
    ruling = await bare_kit.rule("terminal", command=command)
    if ruling.verdict is Verdict.ALLOW:
        said = (await bare_kit.run("terminal", command=command, timeout_s=5)).text
        assert not (bare_kit.workspace / "ran").exists(), "it ran unasked"
        assert SECRET not in said, "it read unasked"
    assert ruling.verdict is not Verdict.ALLOW


async def test_the_attacks_are_real(bare_kit: Kit, outside: Path) -> None:
    """Some of them, run as if the user had said yes: else the test above would prove nothing."""
    for command in (
        "[[ 'a[$(id > ran)]' -eq 0 ]]; ls",
        "declare -i 'x=a[$(id > ran)]'",
        "sed '1e ./evil' a.txt",
    ):
        await bare_kit.run("terminal", command=command)
        assert (bare_kit.workspace / "ran").exists(), command
        (bare_kit.workspace / "ran").unlink()
    for command in (f"cat {{{outside}/secret,x}}", "grep -R bait .", "diff sub other", "cat sub/*"):
        assert SECRET in (await bare_kit.run("terminal", command=command)).text, command


@pytest.mark.parametrize(
    "command",
    [
        "ls -la sub",
        "cat a.txt | head -n 5",
        "grep -n 'al.*a' a.txt",
        'grep -nE "alpha|beta" a.txt',
        "grep -c alpha a.txt sub/b.txt",
        "wc -l a.txt; echo /etc/passwd is a path",
        "tail -n +2 a.txt 2>/dev/null",
        "cut -d: -f1,3 a.txt",
        "diff -u a.txt sub/b.txt",
        "pwd && whoami\nuname -a",
        "ls missing 2>&1 | cat",
        "grep größe a.txt",
        "/usr/bin/cat a.txt",
    ],
)
async def test_reading_the_workspace_needs_no_question(bare_kit: Kit, outside: Path, command: str) -> None:
    ruling = await bare_kit.rule("terminal", command=command)
    assert (ruling.verdict, ruling.reason) == (Verdict.ALLOW, "")


async def test_a_program_of_the_workspace_in_the_path_is_not_the_systems(
    bare_kit: Kit, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (str(bare_kit.workspace), ".", "", "bin"):
        monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin")
        assert (await bare_kit.rule("terminal", command="cat a.txt")).verdict is Verdict.ASK, path
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert (await bare_kit.rule("terminal", command="cat a.txt")).verdict is Verdict.ALLOW


@pytest.mark.parametrize("flags", [(), shell_program()[1:]])
def test_the_shell_reads_no_startup_file(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Bash reads ~/.bashrc when its input is a socket: without our flags the attack works."""
    (tmp_path / ".bashrc").write_text("echo startup\n")
    ours, its = socket.socketpair()
    with ours, its:
        command = [shell_program()[0], *flags, "-c", "echo ran"]
        done = subprocess.run(  # type: ignore[call-overload]  # the options come from a dict
            command, stdin=its, env={"HOME": str(tmp_path)}, capture_output=True, check=True
        )
    assert done.stdout == (b"ran\n" if flags else b"startup\nran\n")


# --- whatever bash makes of it ---------------------------------------------------------------------

PIECES = [
    *(" < a.txt ", " 2>&1 ", " 2>/dev/null ", " -R ", " alpha ", " . ", " sub other ", " bait "),
    *(
        "cat",
        "ls",
        "grep",
        "echo",
        "head",
        "diff",
        "test",
        "a.txt",
        "sub",
        "sub/secret",
        "way",
        "./evil",
        "x",
    ),
    *(
        " ",
        "\t",
        "\n",
        ";",
        "|",
        "&",
        "&&",
        "||",
        "!",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "[[ ",
        " ]]",
        "((",
        "))",
    ),
    *(
        "'",
        '"',
        "`",
        "$",
        "$(",
        "$((",
        "${",
        "\\",
        "\\\n",
        "\\ ",
        "#",
        "~",
        "*",
        "?",
        "=",
        "<",
        ">",
        ">&",
        "<(",
        "2>",
    ),
    *(
        "-",
        "--",
        "-R",
        "-f",
        "-v",
        "-eq",
        "<<",
        "<<<",
        "EOF",
        "\r",
        "\v",
        "\u00a0",
        "\u2003",
        "ran",
        ",",
        "..",
        "/",
    ),
]


@pytest.fixture
def around(bare_kit: Kit, outside: Path) -> CallContext:
    return CallContext(
        workspace=bare_kit.workspace, home=outside.parent / "home", is_sandboxed=False, has_network=False
    )


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=14).map("".join))
def test_no_line_that_is_free_does_anything(around: CallContext, line: str) -> None:
    judgement = judge_command(line, around)
    if judgement.denied or judgement.concerns:
        return
    before = sorted(around.workspace.rglob("*"))
    done = subprocess.run(
        [*shell_program(), "-c", line],
        cwd=around.workspace,
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert sorted(around.workspace.rglob("*")) == before
    assert SECRET.encode() not in done.stdout + done.stderr
