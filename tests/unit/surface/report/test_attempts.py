"""The page of a job with several attempts: the last one in full, the earlier ones with their verdicts."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from random import Random

from whichrank.surface.cli import main
from whichrank.surface.report.make import gather
from whichrank.surface.report.page import page_of
from whichrank.testbed.bench.logs import jobs
from whichrank.testbed.bench.logs.jobs import LAUNCHER, VERSIONS, Job

FIRST_AGAIN = (LAUNCHER, jobs.worded("torchrun: another attempt", left=2))
AGAIN = (LAUNCHER, jobs.worded("torchrun: another attempt", left=1))
GLOO = (0, "RuntimeError: [a/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:43")


def job(culprit: int = 5, hour: int = 7) -> Job:
    return Job(8, culprit, VERSIONS[-1], 167, hour, "ALLREDUCE", 4096, Random(1))


def log(folder: Path, lines: list[tuple[int, str]]) -> Path:
    path = folder / "job.log"
    path.write_text("".join(f"{text}\n" for _, text in lines))
    return path


def page(folder: Path, lines: list[tuple[int, str]]) -> str:
    source = gather([log(folder, lines)])
    return page_of(source.gathered)


def headings(markup: str) -> list[str]:
    """Those of incidents and attempts, in their order."""
    return [unescape(one) for one in re.findall(r"<h[23]>((?:ALERT|Attempt \d).*?)</h[23]>", markup)]


def test_each_attempt_has_its_verdict_and_the_last_one_comes_first(tmp_path: Path) -> None:
    # GIVEN a log in which rank 6 was late, then rank 5, and then rank 1 was killed
    lines = [*jobs.restarted(job()).lines, AGAIN, *jobs.killed(job(1, 9)).lines]
    # WHEN its page is made THEN it begins with the last attempt, and the others follow, the latest first
    made = page(tmp_path, lines)
    last, second, title, first, third = headings(made)
    assert last.startswith("ALERT failure: rank 1 (node node0) left the job")
    assert (second, third[:35]) == ("Attempt 2 of 3", "ALERT hang: rank 6 had not entered ")
    assert (title[:35], first) == ("ALERT hang: rank 5 had not entered ", "Attempt 1 of 3")
    # AND only the last one has its operations, while each has its culprit and its evidence
    assert made.count("<h3>Operations</h3>") == 1
    assert made.count(">Evidence</h") == 3
    assert list(dict.fromkeys(re.findall(r'class="named">(rank \d)</b>', made))) == ["rank 1", "rank 5", "rank 6"]
    # AND a list leads to each
    links = re.findall(r'<li>(Attempt[^<]*)<a href="#([\w-]+)"', made)
    assert [text for text, _ in links] == ["Attempt 3 of 3 (last): ", "Attempt 2 of 3: ", "Attempt 1 of 3: "]
    assert all(made.count(f'id="{anchor}"') == 1 for _, anchor in links)
    assert "attempt 3 of 3 (last) · 8 ranks" in made


def test_nothing_is_to_be_done_to_processes_of_an_earlier_attempt(tmp_path: Path) -> None:
    made = page(tmp_path, [*jobs.killed(job(2, 5)).lines, AGAIN, *jobs.late(job(5, 9)).lines])
    _, earlier = made.split("<h2>Attempt 1 of 2</h2>")
    assert "rank 2" in earlier
    assert 'class="todo"' not in earlier


def test_an_attempt_that_is_not_decided_says_so(tmp_path: Path) -> None:
    # GIVEN an attempt whose only line names nobody, between two in which a rank was late
    lines = [*jobs.late(job(2, 5)).lines, FIRST_AGAIN, GLOO, AGAIN, *jobs.late(job(5, 9)).lines]
    made = page(tmp_path, lines)
    # THEN the page says that of it, and not that there was no incident
    _, earlier = re.split("<h2>Attempt [12] of 3</h2>", made)[:2]
    assert "does not show which rank waits for which" in earlier
    assert "The peer at 10.0.0.3 closed its connection" in unescape(earlier)
    assert "No incident." not in made
    assert "Attempt 2 of 3: not decided" in made


def test_a_job_that_was_started_again_at_the_end_says_so(tmp_path: Path) -> None:
    made = page(tmp_path, [*jobs.late(job()).lines, AGAIN])
    assert "attempt 1 of 2 · 8 ranks" in made
    assert "The job was started again after this" in made


def test_a_job_of_one_attempt_has_no_word_of_attempts(tmp_path: Path) -> None:
    assert "ttempt" not in page(tmp_path, jobs.late(job()).lines)


def test_hosts_of_earlier_attempts_are_left_out(tmp_path: Path) -> None:
    path, output = log(tmp_path, [*jobs.killed(job(2, 5)).lines, AGAIN, *jobs.late(job()).lines]), tmp_path / "r.html"
    assert main(["report", str(path), "-o", str(output)]) == 3
    assert "node0" in output.read_text()
    assert main(["report", str(path), "-o", str(output), "--force", "--redact", "hosts,paths"]) == 3
    assert "node0" not in output.read_text()
    assert "job-attempt" not in output.read_text()
