"""The socket sensor in real processes: what it counts, what it leaves alone, and that nobody notices it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from whichrank.native import CORE, SOCKET, native_path

HERE = Path(__file__).parent


def run_preloaded(program: str, **environment: str) -> str:
    """Run a Python program under the preloaded sensor; its output."""
    env = os.environ | {
        "LD_PRELOAD": str(native_path(SOCKET)),
        "TEST_CORE": str(native_path(CORE)),
        "PYTHONPATH": str(HERE),
    }
    env.pop("WHICHRANK_DISABLE", None)
    env.pop("MASTER_PORT", None)
    text = "import os, socket, sys, time\nfrom preloaded import *\n" + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-S", "-c", text],
        env=env | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_messages_and_bytes_are_counted_by_every_call() -> None:
    run_preloaded("""
        a, b = pair()
        ring = Ring()
        base = ring.frame()
        a.send(b"x" * 10); os.write(a.fileno(), b"y" * 5); os.writev(a.fileno(), [b"z" * 3, b"z" * 4])
        a.sendmsg([b"m"])
        time.sleep(0.05)
        assert len(b.recv(10)) == 10 and len(os.read(b.fileno(), 5)) == 5
        assert os.readv(b.fileno(), [bytearray(3), bytearray(4)]) == 7 and b.recvmsg(9)[0] == b"m"
        sent, received = ring.of(a), ring.of(b)
        assert (sent.messages_sent, sent.bytes_sent, sent.messages_received) == (4, 23, 0), sent
        assert (received.messages_received, received.bytes_received, received.messages_sent) == (4, 23, 0), received
        assert sent.fd == a.fileno() and sent.remote_addr == bytes(10) + b"\\xff\\xff\\x7f\\0\\0\\1"
        assert sent.last_send_ns and not sent.last_receive_ns and received.last_receive_ns >= sent.last_send_ns - 10**9
        assert [x - y for x, y in zip(ring.frame(), base)] == [4, 4]
    """)


def test_facts_from_before_the_ring_are_in_it() -> None:
    run_preloaded("""
        a, b = pair()
        for i in range(7):
            a.send(b"12"); b.recv(2)
        ring = Ring()
        assert ring.of(a).messages_sent == 7 and ring.of(b).bytes_received == 14
        assert 2 <= ring.of(b).paced_bytes() <= 12 and ring.of(a).paced_bytes() == 0  # of the first read nobody knows
        assert ring.frame() == (0, 0)  # no operation was theirs
        a.send(b"12")
        assert ring.of(a).messages_sent == 8 and ring.frame() == (1, 0)
    """)


def test_only_what_takes_bytes_from_tcp_counts() -> None:
    run_preloaded("""
        ring = Ring()
        a, b = pair()
        before = ring.frame()
        a.send(b"abc"); time.sleep(0.05)
        b.recv(2, socket.MSG_PEEK)
        b.setblocking(False); b.recv(3)
        try: b.recv(1); raise SystemExit("expected EAGAIN")
        except BlockingIOError: pass
        u, v = socket.socketpair(); u.send(b"1"); v.recv(1)
        d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(("127.0.0.1", 0))
        d.sendto(b"1", d.getsockname()); d.recv(1)
        r, w = os.pipe(); os.write(w, b"1"); os.read(r, 1)
        e = os.eventfd(0); os.eventfd_write(e, 1); os.eventfd_read(e)
        with open("/etc/hostname") as f: f.read()
        assert ring.of(b).messages_received == 1 and len(ring.connections()) == 2
        assert [x - y for x, y in zip(ring.frame(), before)] == [1, 1]
    """)


def test_close_closes_the_row_and_a_reused_descriptor_is_new() -> None:
    run_preloaded("""
        ring = Ring()
        a, b = pair()
        a.send(b"abc"); b.recv(3)
        number, frame = a.fileno(), ring.frame()
        a.close()
        (closed,) = [c for c in ring.connections() if c.state == CLOSED]
        assert closed.messages_sent == 1 and closed.fd == number
        fd = open_as(number)
        os.read(fd, 8)
        assert ring.frame() == frame
        os.close(fd)
        c, d = pair()
        os.dup2(c.fileno(), b.fileno())  # b is closed by this
        c.send(b"1"); os.write(b.fileno(), b"2")
        assert len([x for x in ring.connections() if x.state == CLOSED]) == 2
        assert ring.of(c).messages_sent == 2  # two descriptors, one connection
    """)


def test_close_that_never_came_by_is_noticed() -> None:
    """libuv closes with a bare system call."""
    run_preloaded("""
        ring = Ring()
        a, b = pair()
        a.send(b"abc"); b.recv(3)
        number = a.fileno()
        libc = ctypes.CDLL(None)
        assert libc.syscall(3 if os.uname().machine == "x86_64" else 57, number) == 0
        a.detach()
        fd = open_as(number)
        time.sleep(0.15)
        frame = ring.frame()
        os.read(fd, 8)
        assert ring.frame() == frame
        assert [c.state for c in ring.connections() if c.fd == number] == [CLOSED]
    """)


def test_forked_child_leaves_the_ring_alone() -> None:
    run_preloaded("""
        ring = Ring()
        a, b = pair()
        a.send(b"abc"); b.recv(3)
        before = ring.everything()
        pid = os.fork()
        if not pid:
            a.send(b"from the child"); a.close(); b.close()
            own = Ring()  # it may become a rank of its own
            c, d = pair(); c.send(b"12")
            ok = own.of(c).messages_sent == 1 and own.connections()[0].state == CLOSED and own.frame() == (1, 0)
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert ring.everything() == before
        b.recv(20); a.send(b"1")
        assert ring.of(a).messages_sent == 2
    """)


def test_vforked_child_closes_nothing_of_ours() -> None:
    """Python's subprocess closes descriptors in a child that shares our memory."""
    run_preloaded("""
        import subprocess
        ring = Ring()
        a, b = pair()
        for s in (a, b): os.set_inheritable(s.fileno(), True)
        a.send(b"abc"); b.recv(3)
        for close in (True, False):
            subprocess.run(["/bin/true"], close_fds=close, check=True)
            subprocess.run(["/bin/sh", "-c", "exec 9>&-; true"], close_fds=close, check=True)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_CLOSE, a.fileno())])
        os.wait()
        assert [c.state for c in ring.connections()] == [OPEN, OPEN]
        a.send(b"1"); assert ring.of(a).messages_sent == 2
    """)


def test_store_is_in_the_table_but_not_in_the_frame() -> None:
    run_preloaded(
        """
        ring = Ring()
        server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        a = socket.create_connection(server.getsockname()); b, _ = server.accept()
        a.send(b"set"); b.recv(3)
        assert ring.of(a).messages_sent == 1 and ring.of(b).messages_received == 1 and ring.frame() == (0, 0)
        c, d = pair()
        c.send(b"1")
        assert ring.frame() == (1, 0)
        ctypes.CDLL(None).wr_socket_store_port(c.getpeername()[1])
        c.send(b"1")
        assert ring.frame() == (1, 0) and ring.of(c).messages_sent == 2
        """,
        MASTER_PORT="29517",
    )


def test_switched_off_it_writes_nothing() -> None:
    run_preloaded(
        """
        ring = Ring()
        before = ring.everything()
        a, b = pair(); a.send(b"1"); b.recv(1); a.close()
        assert ring.everything() == before
        """,
        WHICHRANK_DISABLE="1",
    )


def test_more_connections_than_rows_are_counted() -> None:
    run_preloaded("""
        ring = Ring()
        pairs = [pair() for _ in range(150)]
        for a, b in pairs:
            a.send(b"1"); b.recv(1)
        assert len(ring.connections()) == CONNECTIONS and ring.dropped() == 300 - CONNECTIONS
        assert ring.frame() == (150, 150)  # all the same
        for end in pairs[0]: end.close()
        a, b = pair(); a.send(b"1")
        assert ring.of(a).messages_sent == 1
    """)


def test_threads_lose_no_message() -> None:
    run_preloaded("""
        import threading
        ring = Ring()
        pairs = [pair() for _ in range(4)]
        def work(a, b):
            for _ in range(3000): a.send(b"1"); b.recv(1)
        threads = [threading.Thread(target=work, args=p) for p in pairs for _ in range(2)]
        for t in threads: t.start()
        for t in threads: t.join()
        for a, b in pairs: assert ring.of(a).messages_sent == ring.of(b).messages_received == 6000
        assert ring.frame() == (24000, 24000)
    """)


def test_errno_and_programs_are_untouched() -> None:
    out = run_preloaded("""
        import subprocess
        a, b = pair()
        b.setblocking(False)
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(8)
        assert libc.recv(b.fileno(), buffer, 8, 0) == -1 and ctypes.get_errno() == 11
        assert libc.read(-1, buffer, 8) == -1 and ctypes.get_errno() == 9
        assert libc.close(70000) == -1 and ctypes.get_errno() == 9
        a.send(b"1"); ctypes.set_errno(77)
        assert libc.recv(b.fileno(), buffer, 8, 0) == 1 and ctypes.get_errno() == 77
        shell = ["/bin/sh", "-c", "echo one | cat; ls / >/dev/null; exit 3"]
        print(subprocess.run(shell, capture_output=True).stdout.decode())
    """)
    assert out.strip() == "one"


GLOO = """
    os.environ.update(OMP_NUM_THREADS="1")
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    forks = os.environ.get("FORKS_THE_OTHERS")  # so that torch is loaded once
    others = []
    while forks and rank + 1 < world:
        if pid := os.fork():
            others.append(pid)
            break
        rank += 1
        os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo")
    ring = Ring() if "TEST_CORE" in os.environ else None
    def sent():
        port = int(os.environ["MASTER_PORT"])
        rows = [c for c in ring.connections() if port not in (c.local_port, c.remote_port)]
        return sum(c.messages_sent for c in rows), sum(c.bytes_sent for c in rows), sum(c.bytes_received for c in rows)
    store = dist.distributed_c10d._get_default_store()
    def meet(where):  # over the store, which is not counted
        store.add(where, 1)
        while store.add(where, 0) < world: time.sleep(0.02)
        time.sleep(0.2)
    dist.barrier()
    meet("before")
    before = sent() if ring else None
    meet("looked")
    tensor = torch.full((1000,), float(rank + 1)) / 3
    dist.broadcast(tensor, 0)
    meet("after")
    if ring:
        after = [x - y for x, y in zip(sent(), before)]
        meet("looked again")
        everyone = [None] * world
        dist.all_gather_object(everyone, after)
        # A send is an announcement and the payload; every receiver first says once that it is ready.
        tree = [(count - (receiver > 0)) / 2 for receiver, (count, _, _) in enumerate(everyone)]
        if rank == 0: assert tree == [2, 1, 0, 0], everyone
        assert sum(e[1] for e in everyone) == sum(e[2] for e in everyone)  # what one wrote another read
    generator = torch.Generator().manual_seed(rank)
    values = torch.randn(5000, generator=generator)
    for _ in range(20):
        dist.all_reduce(values); values = torch.tanh(values)
    if rank == 0: print(values.double().sum().item().hex(), values[:4].tolist())
    dist.destroy_process_group()
    if ring:
        port = int(os.environ["MASTER_PORT"])
        assert all(c.state == CLOSED for c in ring.connections() if port not in (c.local_port, c.remote_port))
    assert [os.waitpid(pid, 0)[1] for pid in others] == [0] * len(others)
"""


def run_gloo(port: int, world: int, preloaded: bool) -> str:
    processes = []
    for rank in range(world if preloaded else 1):
        env = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        env |= {"MASTER_PORT": str(port), "PYTHONPATH": str(HERE), "WHICHRANK_DISABLE": "1"}
        if not preloaded:
            env |= {"FORKS_THE_OTHERS": "1"}
        else:
            env |= {"LD_PRELOAD": str(native_path(SOCKET)), "TEST_CORE": str(native_path(CORE))}
            del env["WHICHRANK_DISABLE"]
        text = "import os, sys, time\nfrom preloaded import *\n" + textwrap.dedent(GLOO)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    outputs = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), [o[1][-2000:] for o in outputs]
    return outputs[0][0]


@pytest.mark.integration
def test_gloo_broadcast_is_a_tree_and_results_are_unchanged() -> None:
    """GIVEN 4 Gloo ranks WHEN rank 0 broadcasts THEN they send 2, 1, 0 and 0 messages; results stay equal."""
    pytest.importorskip("torch")
    assert run_gloo(29531, 4, preloaded=True) == run_gloo(29532, 4, preloaded=False)
