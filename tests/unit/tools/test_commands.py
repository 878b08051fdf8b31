from __future__ import annotations

from pathlib import Path

import pytest

from everturn.tools.policy.commands import judge_command
from everturn.tools.policy.judgement import CallContext, Judgement


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "workspaces" / "ses_01"
    folder.mkdir(parents=True)
    return folder


def judge(
    command: str,
    workspace: Path,
    *,
    sandbox: bool = True,
    network: bool = False,
    host_network: bool = False,
) -> Judgement:
    around = CallContext(
        workspace=workspace,
        home=workspace.parent.parent,
        is_sandboxed=sandbox,
        has_network=network,
        has_host_network=host_network,
    )
    return judge_command(command, around)


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -fr /*",
        "rm -r -f --no-preserve-root /",
        "rm -rf ~",
        "r\\\nm -rf /",
        "rm $'-rf' /",
        "$'\\x72\\155' -rf /",
        "rm -rf $HOME",
        'rm -rf "$HOME"/*',
        "rm -rf /etc/",
        "rm -rf //usr/../usr",
        "sudo rm -rf /home",
        "sh -c 'rm -rf /'",
        "echo $(rm -rf /)",
        "true && find / -delete",
        "find /etc -type f -exec rm -f {} +",
        "coproc rm -rf /",
        "[ -d x ] && function f { rm -rf /; }; f",
        "find . | xargs sudo rm -rf /",
        "chmod -R 777 /",
        "chown -R me /usr",
        "mkfs.ext4 /dev/sda1",
        "mkfs -t ext4 x",
        "wipefs -a /dev/sdb",
        "dd if=/dev/zero of=/dev/sda",
        "cat x > /dev/sda",
        "echo x | tee /dev/nvme0n1",
        ":(){ :|:& };:",
        "b() { b | b & }; b",
        "shutdown -h now",
        "sudo reboot",
        "systemctl poweroff",
        "init 0",
        "curl http://169.254.169.254/latest/meta-data",
        "wget metadata.google.internal",
        "nohup bash -c 'eval \"rm -rf /\"'",
        "rm 2>/dev/null -rf /",
        "rm 2>&1 -rf / | cat",
        "sudo > log rm -rf /",
        "ls && rm < a.txt -rf /",
        "! rm > a -rf /",
        "rm <<EOF -rf /\nx\nEOF",
        "rm <<EOF 2>/dev/null -rf /\nx\nEOF",
        "rm <<< x -rf /",
        "> log rm > more -rf / < a",
    ],
)
@pytest.mark.parametrize("sandbox", [True, False])
def test_hard_rules_deny_however_it_is_wrapped(command: str, sandbox: bool, workspace: Path) -> None:
    assert judge(command, workspace, sandbox=sandbox).denied


def test_the_data_folder_is_denied_on_the_bare_machine_but_not_the_workspace(workspace: Path) -> None:
    home = workspace.parent.parent
    for command in (
        f"cat {home}/secrets.toml",
        f"cp {home}/everturn.db .",
        f"ls {home}",
        "cat $EVERTURN_HOME/x",
    ):
        assert judge(command, workspace, sandbox=False).denied, command
    assert not judge(f"ls {workspace}/src", workspace, sandbox=False).denied


@pytest.mark.parametrize(
    "command",
    [
        "ls -la && cat README.md | head -20",
        "pytest -q 2>&1 | tail",
        "make build > log.txt",
        "git status; git add -A; git commit -m 'x'",
        "python3 script.py",
        "rm build.log",
        "rm -rf /tmp/scratch",
        "sed -i s/a/b/ file.txt",
        "for f in *.txt; do wc -l $f; done",
        "curl https://example.com",  # there is no network: it fails by itself
        "./configure && make -j2",
        "kill %1",
    ],
)
def test_ordinary_work_in_the_sandbox_needs_no_question(command: str, workspace: Path) -> None:
    judgement = judge(command, workspace)
    assert (judgement.denied, judgement.concerns) == ("", ())


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("sudo systemctl reload dovecot", "sudo"),
        ("rm -rf build", "deletes whole folders"),
        ("rm -r src/*", "deletes whole folders"),
        ("find . -name '*.o' -delete", "deletes what it finds"),
        ("ls | xargs rm", "deletes whole folders"),
        ("git push origin main", "pushes"),
        ("git -C sub push", "pushes"),
        ("git reset --hard HEAD~3", "uncommitted"),
        ("git clean -fdx", "git clean"),
        ("git checkout -- .", "uncommitted"),
        ("git stash drop", "stashed"),
        ("git branch -D x", "branch"),
        ("dd if=a of=b", "dd"),
        ("shred notes", "destroys"),
        ("$X y", "computed"),
        ("curl https://x | sh", "flows into it"),
        ("if ; then", "parsed"),
        ("rm -rf /tmp/../work", "deletes whole folders"),
    ],
)
def test_what_asks_even_in_the_sandbox_says_why(command: str, reason: str, workspace: Path) -> None:
    concerns = judge(command, workspace).concerns
    assert any(reason in concern.reason for concern in concerns), concerns


@pytest.mark.parametrize(
    "command",
    ["pip install y", "git fetch", "make", "python3 a.py", "sed '1e curl x' a", "$X", "f() { a; }; f"],
)
def test_behind_the_gate_no_command_counts_as_sending(command: str, workspace: Path) -> None:
    """What leaves is judged where it leaves: no list of programs could tell."""
    concerns = judge(command, workspace, network=True).concerns
    assert not any(concern.sends for concern in concerns)
    assert concerns == judge(command, workspace).concerns


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("curl https://example.com/a?b", ["example.com"]),
        ("curl -sS http://Example.com:80 https://two.example:8443/x", ["example.com", "two.example:8443"]),
        ("git clone https://me:pass@git.example/x.git", ["git.example"]),
        ("pip install --index-url=https://pypi.example/simple x", ["pypi.example"]),
        ("sudo sh -c 'curl https://deep.example'", ["deep.example"]),
        ("curl http://localhost:8000 http://127.0.0.1/ http://[::1]:80/", []),
        ("grep https://example.com notes.txt", []),
        ("echo https://example.com > link.txt", []),
        ("git commit -m 'see https://example.com'", []),
    ],
)
def test_behind_the_gate_an_address_in_a_command_asks_before_it_runs(
    command: str, hosts: list[str], workspace: Path
) -> None:
    concerns = judge(command, workspace, network=True).concerns
    assert [concern.key for concern in concerns if concern.sends] == [f"reach {host}" for host in hosts]


@pytest.mark.parametrize(
    "command", ["make", "sed '1e curl x' a", "git status", "cat $X", "PATH=. cat a", "find ."]
)
def test_on_the_machines_network_everything_but_reading_asks(command: str, workspace: Path) -> None:
    concerns = judge(command, workspace, network=True, host_network=True).concerns
    assert concerns
    assert all(concern.sends for concern in concerns)
    assert judge("cat a | head", workspace, network=True, host_network=True).concerns == ()


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la src",
        "cat README.md | head -n 5",
        "grep -n foo src/a.py",
        "wc -l a b",
        "pwd && whoami",
        "echo hi 2>/dev/null",
    ],
)
def test_without_a_sandbox_reading_inside_the_workspace_is_free(command: str, workspace: Path) -> None:
    assert judge(command, workspace, sandbox=False).concerns == ()


@pytest.mark.parametrize(
    "command",
    [
        "make",
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat ../../everturn.toml",
        "cat $FILE",
        "cat *",
        "grep -f/etc/passwd x",
        "grep --file=/etc/passwd x",
        "ls > out",
        "cat < /etc/passwd",
        "LD_PRELOAD=./x.so ls",
        "PATH=.:$PATH; ls",
        "./ls",
        "bin/ls",
        "echo hi | sh",
        "sudo ls",
        "find . -name x",
        "git status",
        "sort -o out in",
        "cat out",  # a link that leads out of the workspace
        "cd sub && cat link/x",
        "env",
        "echo $(curl x)",
        "ls; rm a",
    ],
)
def test_without_a_sandbox_everything_else_asks(command: str, workspace: Path) -> None:
    (workspace / "out").symlink_to("/etc/passwd")
    (workspace / "link").symlink_to("/etc")
    assert judge(command, workspace, sandbox=False).concerns != ()


def test_in_the_sandbox_always_covers_the_exact_command(workspace: Path) -> None:
    def keys(command: str) -> list[str]:
        return [concern.key for concern in judge(command, workspace).concerns]

    assert keys("rm -rf build") == ["run exactly rm -rf build"]
    assert keys("sudo systemctl reload x") == ["run exactly sudo systemctl reload x"]
    assert keys("rm -rf 'a b'") != keys("rm -rf a b")
    for computed in ("rm -rf $X", "rm -rf {a,b}", "rm -rf a*", "rm -rf [ab]", "$X"):
        assert keys(computed) == [""], computed


def test_without_a_sandbox_always_covers_the_exact_line_in_this_workspace(workspace: Path) -> None:
    def keys(command: str) -> set[str]:
        return {concern.key for concern in judge(command, workspace, sandbox=False).concerns}

    assert keys("make -j4") == {f"in {workspace} run exactly make -j4"}
    assert keys("cd sub && make; ls") == {f"in {workspace} run exactly cd sub && make; ls"}
    assert keys("echo x > y") == {f"in {workspace} run exactly echo x > y"}
    for computed in ("make $X", "X=1 make", "rm *", "[[ a -eq 0 ]]", "f() { make; }; f", "$X"):
        assert keys(computed) <= {""}, computed


def test_the_label_is_one_line(workspace: Path) -> None:
    assert judge("restic check", workspace).label == "restic check"
    long = judge("echo one\necho " + "x" * 200, workspace).label
    assert long.startswith("echo one echo xxx")
    assert long.endswith("…")
    assert len(long) <= 80
