/* The watch loop: what wakes the agent, and that nothing else does. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "whichrank/watch.h"

enum { EVERY_MS = 10, LONGEST_MS = 80, MOST_RECORDS = 100, QUIET_MS = 60, PATIENCE_MS = 10000 };

static int wake_fd = -1, ring_fd = -1, stat_fd = -1;

static int stat_of(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  return open(path, O_RDONLY | O_CLOEXEC);
}

static int is_woken(int within_ms) {
  struct pollfd p = {wake_fd, POLLIN, 0};
  uint64_t count;
  return poll(&p, 1, within_ms) == 1 && read(wake_fd, &count, sizeof count) == sizeof count;
}

/* As a snapshot of now has it. */
static wr_watched as_now(const wr_ring *ring) {
  const wr_header *h = &ring->header;
  uint64_t marks = h->closed_ns + h->exception_ns + h->first_failure_ns + h->init_ns;
  return (wr_watched){ring_fd, stat_fd, h->head, marks};
}

static void arm(const wr_ring *ring) {
  wr_watched now = as_now(ring);
  CHECK_EQUAL(wr_watch_arm(&now, 1, MOST_RECORDS), 0);
}

static wr_ring *begin(int *slot) {
  wr_ring *ring = ring_new_at(&ring_fd);
  *slot = comm_new(ring, 4);
  stat_fd = stat_of(getpid());
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK_EQUAL(wr_watch_start(wake_fd, EVERY_MS, LONGEST_MS), 0);
  return ring;
}

static void end(void) {
  wr_watch_stop();
  close(wake_fd);
  close(ring_fd);
  close(stat_fd);
}

TEST(watch_refuses_what_makes_no_sense) {
  wr_watched none = {-1, -1, 0, 0};
  CHECK_EQUAL(wr_watch_start(-1, 1, 1), EINVAL);
  CHECK_EQUAL(wr_watch_start(0, 0, 1), EINVAL);
  CHECK_EQUAL(wr_watch_start(0, 1, 0), EINVAL);
  CHECK_EQUAL(wr_watch_arm(&none, 1, 1), EINVAL);
  int slot;
  begin(&slot);
  CHECK_EQUAL(wr_watch_start(wake_fd, 1, 1), EALREADY);
  CHECK_EQUAL(wr_watch_arm(&none, 1, 0), EINVAL);
  end();
  wr_watch_stop();
}

TEST(watch_is_silent_while_all_is_well) {
  int slot;
  wr_ring *ring = begin(&slot);
  arm(ring);
  for (int i = 0; i < 20; i++) { /* operations that take no time */
    wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &op);
    wr_op_issued(ring, &op);
    usleep(5000);
    wr_op_end(ring, &op, WR_DONE);
  }
  CHECK(!is_woken(QUIET_MS));
  CHECK_EQUAL(wr_watch_arm(NULL, 0, MOST_RECORDS), 0);
  CHECK(!is_woken(QUIET_MS));
  end();
}

TEST(watch_wakes_once_for_an_operation_that_stays_in_flight) {
  int slot;
  wr_ring *ring = begin(&slot);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  uint64_t issued = wr_now_ns();
  arm(ring);
  CHECK(is_woken(PATIENCE_MS));
  CHECK(wr_now_ns() - issued >= (uint64_t)LONGEST_MS * 1000000);
  CHECK(!is_woken(QUIET_MS)); /* it waits to be armed again */
  arm(ring);
  CHECK(is_woken(PATIENCE_MS));
  wr_op_end(ring, &op, WR_DONE);
  arm(ring);
  CHECK(!is_woken(QUIET_MS));
  end();
}

TEST(watch_wakes_for_an_operation_however_many_are_in_flight) {
  enum { MANY = 20 };
  int slot;
  wr_ring *ring = begin(&slot);
  wr_op ops[MANY];
  for (int i = 0; i < MANY; i++) {
    ops[i] = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &ops[i]);
  }
  for (int i = 0; i < MANY - 1; i++) wr_op_end(ring, &ops[i], WR_DONE);
  arm(ring);
  CHECK(is_woken(PATIENCE_MS));
  wr_op_end(ring, &ops[MANY - 1], WR_DONE);
  arm(ring);
  CHECK(!is_woken(QUIET_MS));
  end();
}

TEST(watch_wakes_for_a_thread_that_is_blocked) {
  int slot;
  wr_ring *ring = begin(&slot);
  int row = wr_remote_wait_begin(ring, 2);
  REQUIRE(row >= 0);
  arm(ring);
  CHECK(is_woken(PATIENCE_MS));
  wr_outside_wait_end(ring, row);
  arm(ring);
  CHECK(!is_woken(QUIET_MS));
  end();
}

TEST(watch_wakes_before_records_are_overwritten) {
  int slot;
  wr_ring *ring = begin(&slot);
  arm(ring);
  for (int i = 0; i < MOST_RECORDS; i++) {
    wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &op);
    wr_op_end(ring, &op, WR_DONE);
  }
  CHECK(is_woken(PATIENCE_MS));
  arm(ring);
  CHECK(!is_woken(QUIET_MS));
  end();
}

TEST(watch_wakes_for_every_mark) {
  int slot;
  wr_ring *ring = begin(&slot);
  arm(ring);
  wr_note_exception(ring, "ValueError: x");
  CHECK(is_woken(PATIENCE_MS));
  arm(ring);
  CHECK(!is_woken(QUIET_MS));
  wr_note_failure(ring, "lost");
  CHECK(is_woken(PATIENCE_MS));
  wr_watched before = as_now(ring);
  STORE(&ring->header.closed_ns, wr_now_ns()); /* between the snapshot and the arming */
  CHECK_EQUAL(wr_watch_arm(&before, 1, MOST_RECORDS), 0);
  CHECK(is_woken(PATIENCE_MS));
  end();
}

TEST(watch_wakes_for_a_process_that_is_stopped_or_gone) {
  int slot;
  wr_ring *ring = begin(&slot);
  close(stat_fd);
  pid_t child = fork();
  if (!child) {
    for (;;) pause();
  }
  stat_fd = stat_of(child);
  arm(ring);
  CHECK(!is_woken(QUIET_MS)); /* its heartbeat is late, since nobody writes one, and it sleeps */
  kill(child, SIGSTOP);
  CHECK(is_woken(PATIENCE_MS));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  arm(ring);
  CHECK(is_woken(PATIENCE_MS));
  end();
}

TEST(watch_wakes_for_a_ring_that_cannot_be_read) {
  int slot;
  wr_ring *ring = begin(&slot);
  wr_watched gone = as_now(ring);
  gone.ring_fd = -1;
  CHECK_EQUAL(wr_watch_arm(&gone, 1, MOST_RECORDS), 0);
  CHECK(is_woken(PATIENCE_MS));
  end();
}

TEST(watch_looks_no_more_once_it_is_disarmed) {
  int slot;
  wr_ring *ring = begin(&slot);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  arm(ring);
  wr_watch_disarm();
  CHECK(!is_woken(LONGEST_MS + QUIET_MS));
  end();
}
