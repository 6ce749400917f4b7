"""Attacks from inside: each asserts the outcome, the host's state, and what is left running."""

import os
import socket

import pytest

from tadpole.protocols import ExecReason, Limits
from tadpole.sandboxes.binaries import box_python
from tadpole.settings import BoxKind


async def bash(box, script, timeout=20.0):
    return await box.exec(["/bin/bash", "-c", script], timeout=timeout)


async def python(box, script, timeout=20.0):
    argv = [str(box_python()), "-I", "-S", "-c", script]
    return await box.exec(argv, timeout=timeout)


async def test_host_files_are_not_there(box, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("canary-4711")
    script = f"cat {secret} /etc/shadow /root/.bashrc; ls -A /home /root /var /mnt /srv"
    result = await bash(box, script)
    assert result.stdout == ""
    if box.kind is not BoxKind.CONTAINER:  # which has a file about itself, and the kernel's
        assert (await bash(box, "ls -A /run /sys")).stdout == ""
    assert (await bash(box, "grep -rs canary-4711 /repo /tmp /etc /.box | wc -l")).stdout == "0\n"


async def test_other_processes_are_not_there(box):
    result = await bash(box, "cat /proc/*/environ | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l")
    assert int(result.stdout.splitlines()[-1]) < 10
    for name in set(os.environ) - {"PATH", "HOME", "LANG", "PWD", "TERM", "USER", "SHLVL", "_"}:
        assert f"\n{name}=" not in result.stdout


async def test_killing_everything_ends_only_the_call(box, census):
    for script in (
        "kill -9 -1",
        "kill -9 1",
        "kill -9 $PPID; sleep 0.2",
        "for s in $(seq 1 64); do kill -$s 1; done; echo survived",
    ):
        await bash(box, f"sleep {census.mark} & {script}", timeout=5)
        assert census.count() == 0, script
        assert (await bash(box, "echo alive")).stdout == "alive\n", script
        assert (await box.tool("Bash", {"command": script, "timeout": 5})).text.strip(), script
        assert (await bash(box, "echo alive")).stdout == "alive\n", script


async def test_the_runner_cannot_be_starved(box):
    """In a box without nesting the runner is process 1 and of the same user."""
    script = """
import os, resource
def attempt(call, *arguments):
    try: call(*arguments); print("WENT THROUGH")
    except PermissionError: print("refused")
attempt(resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0))
attempt(resource.prlimit, 1, resource.RLIMIT_CPU, (0, 0))
attempt(os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
attempt(os.sched_setaffinity, 1, {0})
attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
attempt(os.open, "/proc/1/mem", os.O_RDWR) if os.getpid() != 2 else print("refused")
os.nice(1); resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print("its own it may")
"""
    lines = (await python(box, script)).stdout.splitlines()
    assert lines[:6] == ["refused"] * 6 and lines[-1] == "its own it may"
    assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_fork_bomb(start, census):
    box = await start(Limits(processes=64))
    result = await bash(box, f"f() {{ sleep {census.mark} & f | f & }}; f; sleep 2", timeout=0.6)
    assert result.reason in (ExecReason.EXITED, ExecReason.TIMEOUT)
    assert census.count() == 0
    assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_orphans_that_have_ended_count_for_nothing(start):
    box = await start(Limits(processes=64))
    result = await bash(box, "for i in $(seq 130); do (true &) ; sleep 0.001; done; echo done")
    assert (result.reason, result.stdout, result.stderr) == (ExecReason.EXITED, "done\n", "")


async def test_process_limit_counts_one_box_only(start):
    count = (
        "import os, signal\nn = 0\ntry:\n while n < 500:\n  if os.fork() == 0: signal.pause()\n"
        "  n += 1\nexcept OSError: pass\nprint(n)"
    )
    for _ in range(2):
        box = await start(Limits(processes=40))
        assert 20 <= int((await python(box, count)).stdout) <= 40


@pytest.mark.parametrize("workers", [1, 4])
async def test_memory_bomb(start, workers):
    box = await start(Limits(memory=100 << 20))
    script = (
        f"import os, time\nfor _ in range({workers} - 1):\n if os.fork() == 0: break\n"
        f"x = bytearray(b'x') * ((200 << 20) // {workers})\ntime.sleep(15)"
    )
    result = await python(box, script)
    assert (result.reason, result.code) == (ExecReason.MEMORY, 137)
    after = await bash(box, "echo alive")
    assert (after.reason, after.stdout) == (ExecReason.EXITED, "alive\n")


async def test_shared_pages_are_counted_once(start):
    box = await start(Limits(memory=160 << 20))
    script = (
        "import os, time\nx = bytearray(b'x') * (80 << 20)\n"
        "children = []\nfor _ in range(4):\n child = os.fork()\n"
        " if child == 0:\n  time.sleep(0.4); os._exit(0)\n children.append(child)\n"
        "for child in children: os.waitpid(child, 0)\nprint('done')"
    )
    result = await python(box, script)
    assert (result.reason, result.stdout) == (ExecReason.EXITED, "done\n")


async def test_processor_time_of_a_command_and_its_children(start, census):
    box = await start(Limits(cpu_seconds=1))
    spin = f"for i in 1 2 3; do (while :; do :; done) & done; sleep {census.mark}"
    result = await bash(box, spin, timeout=60)
    assert (result.reason, result.code) == (ExecReason.CPU, 137)
    assert result.seconds < 30 and census.count() == 0
    after = await bash(box, "echo alive")
    assert (after.reason, after.stdout) == (ExecReason.EXITED, "alive\n")


async def test_filling_every_place(start):
    box = await start(Limits(disk=8 << 20))
    places = "/repo /tmp / /dev /dev/shm /usr /etc /.box /.box/scratch /proc /.box/lower"
    script = (
        f"for p in {places}; do for i in $(seq 80); do "
        "head -c 1048576 /dev/zero 2>/dev/null > $p/fill$i || { echo $p full; break; }; "
        "done; done 2>/dev/null; du -sm /repo /tmp /dev/shm | cut -f1 | paste -sd+ | bc"
    )
    result = await bash(box, script)
    for place in places.split():
        assert f"{place} full" in result.stdout.splitlines(), result.stdout


async def test_more_files_than_fit(start):
    box = await start(Limits(inodes=500))
    if not box.traits.inodes:
        pytest.skip("this engine cannot bound the number of files; memory bounds it")
    result = await bash(
        box, "mkdir m; cd m; for i in $(seq 1000); do : > f$i || break; done; ls | wc -l"
    )
    assert int(result.stdout.splitlines()[-1]) < 500
    assert (await bash(box, "rm -r m; echo fine > again; cat again")).stdout == "fine\n"


async def test_shared_memory_is_bounded_and_ends_with_its_command(start):
    """In a box without nesting System V memory outlived its call, unseen by the watch."""
    box = await start(Limits(inodes=500))
    script = """
import ctypes, os
libc = ctypes.CDLL(None)
print(libc.shmget(0, 1 << 20, 0o1600) >= 0, libc.msgget(0, 0o1600) >= 0,
      libc.semget(0, 3, 0o1600) >= 0)
os.makedirs("/dev/shm/a/b"); os.symlink("/repo", "/dev/shm/a/c"); os.chmod("/dev/shm/a", 0o700)
"""
    assert (await python(box, script)).stdout == "True True True\n"
    left = await bash(box, "tail -qn +2 /proc/sysvipc/*; ls -A /dev/shm; ls run.sh")
    assert left.stdout == "run.sh\n"
    if box.kind is BoxKind.CONTAINER:
        return  # where memory bounds it
    many = "cd /dev/shm; for i in $(seq 1000); do : > f$i || break; done; ls | wc -l"
    assert int((await bash(box, many)).stdout.splitlines()[-1]) < 500
    assert (await bash(box, "chmod 000 /dev/shm; echo fine > again; cat again")).stdout == "fine\n"
    assert (await bash(box, "ls -A /dev/shm | wc -l")).stdout == "0\n"


async def test_links_to_host_files_lead_nowhere(box, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    await bash(box, f"ln -s {victim} link; ln -s / rootlink; echo pwned > link")
    assert (await box.tool("Write", {"file_path": "link", "content": "x"})).error
    assert (await box.tool("Read", {"file_path": f"rootlink{victim}"})).error
    for path in ("link", f"rootlink{victim}", f"../{victim}"):
        with pytest.raises(FileNotFoundError):
            await box.read(path)
    assert victim.read_text() == "untouched"


async def test_writing_through_a_directory_swapped_for_a_link(box):
    from tadpole.task import FileChange

    await bash(box, "rm -rf pkg; ln -s /tmp pkg")
    with pytest.raises(OSError):
        await box.write([FileChange("pkg/core.py", b"x")])
    assert (await bash(box, "ls -A /tmp")).stdout == ""


async def test_tools_cannot_reach_the_runner_itself(box):
    for path in ("/proc/self/mem", "/proc/1/mem", "/proc/self/environ"):
        assert (await box.tool("Write", {"file_path": path, "content": "x"})).error, path
        assert (await box.tool("Read", {"file_path": path})).error, path
        assert (await bash(box, "echo alive")).stdout == "alive\n", path


async def test_daemons_are_dead_when_the_call_returns(box, census):
    script = f"setsid nohup sh -c '(sleep {census.mark} &) ; sleep 0.2; echo late > /repo/late' &"
    await bash(box, script + " disown; sleep 0.1")
    assert census.count() == 0
    await bash(box, "sleep 0.3")
    with pytest.raises(FileNotFoundError):
        await box.read("late")


async def test_no_way_to_the_network(box, tmp_path):
    path = str(tmp_path / "s")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        name = f"tadpole-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        unix.bind(path)
        unix.listen()
        script = f"""
import socket
def attempt(call):
    try: call(); print("CONNECTED")
    except OSError as error: print(error.errno)
attempt(lambda: socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 3))
attempt(lambda: socket.create_connection(("192.0.2.1", 80), 3))
attempt(lambda: socket.socket(1).connect({path!r}))
attempt(lambda: socket.socket(1).connect("\\0{name}"))
for family in (40, 17, 38, 21, 29): attempt(lambda: socket.socket(family, 1))
attempt(lambda: socket.socketpair(40))
s = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname(), 3)
print("own loopback works")
"""
        result = await python(box, script)
    assert "CONNECTED" not in result.stdout and result.stdout.endswith("own loopback works\n")


async def test_system_calls_that_exploits_start_from(box):
    calls = {  # x86_64 and aarch64 numbers of the same call
        "unshare": (272, 97), "mount": (165, 40), "umount2": (166, 39), "ptrace": (101, 117),
        "process_vm_readv": (310, 270), "keyctl": (250, 219), "bpf": (321, 280),
        "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
        "setns": (308, 268), "chroot": (161, 51), "pivot_root": (155, 41), "reboot": (169, 142),
        "init_module": (175, 105), "kexec_load": (246, 104), "open_by_handle_at": (304, 265),
        "swapon": (167, 224), "syslog": (103, 116), "open_tree": (428, 428), "fsopen": (430, 430),
    }  # fmt: skip
    numbers = [pair[os.uname().machine == "aarch64"] for pair in calls.values()]
    script = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in {numbers}:
    print(libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())
clone = {(56, 220)[os.uname().machine == "aarch64"]}
print(libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())
print(libc.syscall(435, 0, 0), ctypes.get_errno())
"""
    for _ in range(2):  # the second call's filter is there too
        lines = (await python(box, script)).stdout.splitlines()
        assert lines[:-1] == ["-1 1"] * (len(calls) + 1) and lines[-1] == "-1 38"


async def test_no_privileges_to_gain(box):
    status = (await bash(box, "cat /proc/self/status")).stdout
    if box.kind is not BoxKind.FLAT:  # where nothing can be had of it: no new privileges
        assert "CapBnd:\t" + "0" * 16 in status
    for line in ("CapPrm:\t" + "0" * 16, "CapEff:\t" + "0" * 16, "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    result = await bash(box, "su -c id root; passwd -d root; mount -t tmpfs none /tmp; id -u")
    user = int(result.stdout)
    assert user == 1000 if box.kind is not BoxKind.CONTAINER else user > 0
    assert (await bash(box, "mknod x b 254 0; mknod y c 1 1; ls x y")).stdout == ""
    assert (await bash(box, "cat /dev/vda /dev/sda /dev/mem /dev/kmsg /proc/kcore")).stdout == ""
    assert (await bash(box, "echo 1 > /proc/sys/kernel/panic; echo c > /proc/sysrq-trigger")).code


async def test_the_read_only_system_stays_so(box):
    for path in (
        "/usr/x",
        "/etc/passwd",
        "/.box/inside/runner.py",
        "/.box/toolbox/__init__.py",
        "/x",
    ):
        assert (await bash(box, f"echo x > {path}")).code != 0, path


async def test_output_flood_is_killed(box):
    result = await bash(box, "yes", timeout=30)
    assert result.reason is ExecReason.OUTPUT
    assert len(result.stdout) < 31_000
    binary = await bash(box, "echo begin; head -c 3000000 /dev/urandom; echo; echo end")
    assert binary.reason is ExecReason.EXITED and "bytes cut" in binary.stdout
    assert binary.stdout.startswith("begin\n") and binary.stdout.endswith("\nend\n")


async def test_no_descriptors_and_no_terminal(box):
    result = await bash(box, "ls /proc/$$/fd; tty; echo x > /dev/tty")
    assert result.stdout == "0\n1\n2\nnot a tty\n"


async def test_nul_bytes_and_half_pairs_in_names(box):
    for name in ("a\0b", "a\ud800b"):
        for call in (box.read(name), box.exec(["cat", name], timeout=20)):
            with pytest.raises(ValueError):
                await call
    assert (await box.tool("Read", {"file_path": "a\0b"})).error
    assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_giant_sparse_file(start):
    box = await start(Limits(disk=64 << 20))
    assert (await bash(box, "truncate -s 1T giant")).code != 0


async def test_closing_the_own_directories(box):
    for _ in range(2):
        await bash(box, "echo new > new; chmod 000 /repo /tmp new")
        assert (await bash(box, "pwd; ls -d new")).stdout == "/repo\nnew\n"
        await bash(box, "chmod 000 /repo /tmp")
        assert (await box.tool("Read", {"file_path": "run.sh"})).text == "#!/bin/sh\necho run\n"
        await bash(box, "chmod 000 /repo")
        assert [change.path for change in await box.delta()] == ["new"]


async def test_removing_or_swapping_the_work_tree(box, tree):
    assert (await bash(box, "mkdir gone; cd gone; rm -r ../gone; pwd; echo x > y")).code != 0
    await bash(box, "rm -rf /repo /tmp")
    assert (await bash(box, "pwd; echo new > a; cat a")).stdout == "/repo\nnew\n"
    assert (tree / "pkg" / "core.py").exists()
