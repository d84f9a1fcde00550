/* The frame sampler: CCL-D's rates, windows, rings that come, go and are truncated. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "whichrank/sampler.h"

static int wait_windows(uint64_t id, uint64_t n, wr_rates *rates) {
  for (int i = 0; i < 400; i++, usleep(10000))
    if (!wr_sampler_read(id, rates) && rates->windows >= n) return 1;
  return 0;
}

static wr_ring *watched_ring(int *fd) {
  wr_ring *ring = ring_new_at(fd);
  wr_op op = op_new(comm_new(ring, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  return ring;
}

TEST(sampler_refuses_what_makes_no_sense) {
  int fd;
  ring_new_at(&fd);
  CHECK_EQUAL(wr_sampler_start(0, 100, 1000), EINVAL);
  CHECK_EQUAL(wr_sampler_start(1000, 20, 50), 0);
  CHECK_EQUAL(wr_sampler_start(1000, 20, 50), EALREADY);
  CHECK_EQUAL(wr_sampler_add(-1, 1), EBADF);
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 1), EEXIST);
  wr_rates rates;
  CHECK_EQUAL(wr_sampler_read(2, &rates), ENOENT);
  CHECK_EQUAL(wr_sampler_remove(2), ENOENT);
  for (uint64_t id = 2; id <= WR_SAMPLED_RINGS; id++) CHECK_EQUAL(wr_sampler_add(fd, id), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 99), ENOSPC);
  CHECK_EQUAL(wr_sampler_remove(7), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 99), 0);
  wr_sampler_stop();
  wr_sampler_stop();
  CHECK_EQUAL(wr_sampler_read(1, &rates), ENOENT);
  close(fd);
}

TEST(sampler_pause_can_be_made_shorter_and_longer) {
  int fd;
  watched_ring(&fd);
  CHECK_EQUAL(wr_sampler_start(1000, 20, 3600000), 0); /* the next burst in an hour */
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  wr_rates rates;
  usleep(100000);
  wr_sampler_every(50);
  REQUIRE(wait_windows(1, 3, &rates));
  wr_sampler_every(3600000);
  usleep(150000);
  CHECK_EQUAL(wr_sampler_read(1, &rates), 0);
  uint64_t windows = rates.windows;
  usleep(200000);
  CHECK_EQUAL(wr_sampler_read(1, &rates), 0);
  CHECK_EQUAL(rates.windows, windows);
  wr_sampler_stop();
  close(fd);
}

TEST(sampler_first_window_of_a_late_ring_is_whole) {
  int fd, late;
  ring_new_at(&fd);
  watched_ring(&late);
  CHECK_EQUAL(wr_sampler_start(1000, 200, 200), 0); /* without a pause */
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  usleep(60000); /* in the middle of a window, when nothing can be said of its beginning */
  CHECK_EQUAL(wr_sampler_add(late, 2), 0);
  wr_rates rates;
  REQUIRE(wait_windows(2, 1, &rates));
  CHECK(rates.last.start_ns > 0 && rates.last.end_ns - rates.last.start_ns >= 190000000);
  CHECK(rates.total.start_ns > 0);
  wr_sampler_stop();
  close(fd);
  close(late);
}

/* CCL-D figure 6: eight sends in two steps are a rate of 1/2, in seven steps 1/7. */
static void figure_6(int steps, const int *sends) {
  int fd;
  wr_ring *ring = watched_ring(&fd);
  wr_rates rates;
  CHECK_EQUAL(wr_sampler_start(1000, 300, 300), 0); /* without a pause */
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  REQUIRE(wait_windows(1, 1, &rates));
  uint64_t from = rates.windows;
  for (int step = 0; step < steps; step++, usleep(15000))
    for (int i = 0; i < sends[step]; i++) wr_frame_count(ring, 0, 0);
  for (int i = 0; i < 5; i++, usleep(15000)) wr_frame_count(ring, 4, 1);
  REQUIRE(wait_windows(1, from + 2, &rates));
  wr_sampler_stop();
  CHECK_EQUAL(rates.total.channel[0].send_messages, 8);
  CHECK_EQUAL(rates.total.channel[0].send_changes, steps);
  CHECK(fabs(rates.total.channel[0].send_rate - 1.0 / steps) < 1e-12);
  CHECK(rates.total.channel[0].recv_rate == 0 && !rates.total.channel[0].recv_changes);
  CHECK(rates.total.channel[1].recv_messages == 5 && rates.total.channel[1].recv_changes == 5);
  CHECK_EQUAL(rates.total.active_send, steps);
  CHECK_EQUAL(rates.total.active_recv, 5);
  CHECK(rates.total.samples > 200 && rates.failed == 0);
  close(fd);
}

TEST(sampler_rate_of_figure_6_normal) { figure_6(2, (const int[]){4, 4}); }
TEST(sampler_rate_of_figure_6_slow) { figure_6(7, (const int[]){1, 1, 1, 2, 1, 1, 1}); }

/* A new operation starts from zero: its messages are neither lost nor negative. */
TEST(sampler_follows_the_blocks) {
  int fd, slot = 0;
  wr_ring *ring = watched_ring(&fd);
  wr_rates rates;
  CHECK_EQUAL(wr_sampler_start(1000, 250, 250), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  REQUIRE(wait_windows(1, 1, &rates));
  for (int i = 0; i < 20; i++, usleep(6000)) {
    wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
    wr_op_begin(ring, &op);
    for (int j = 0; j < 30 - i; j++) wr_frame_count(ring, 0, 1);
    wr_op_end(ring, &op, WR_DONE);
  }
  uint64_t from = rates.windows;
  REQUIRE(wait_windows(1, from + 2, &rates));
  wr_sampler_stop();
  CHECK_EQUAL(rates.total.channel[0].recv_messages, 20 * 30 - 190);
  CHECK_EQUAL(rates.total.operations, 20);
  CHECK(rates.total.channel[0].recv_changes >= 10 && rates.total.channel[0].recv_changes <= 40);
  close(fd);
}

TEST(sampler_bursts_and_on_suspicion_all_the_time) {
  int fd;
  watched_ring(&fd);
  wr_rates rates, later;
  CHECK_EQUAL(wr_sampler_start(1000, 30, 300), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  REQUIRE(wait_windows(1, 3, &rates));
  CHECK(rates.total.samples <= 31 * rates.windows);
  CHECK(rates.last.samples >= 5 && rates.last.end_ns - rates.last.start_ns < 290 * UINT64_C(1000000));
  wr_sampler_always(1);
  REQUIRE(wait_windows(1, rates.windows + 3, &later));
  CHECK(later.last.samples + later.late >= 150);
  CHECK(later.last.end_ns - later.last.start_ns > 250 * UINT64_C(1000000));
  wr_sampler_always(0);
  REQUIRE(wait_windows(1, later.windows + 3, &rates));
  CHECK(rates.last.samples <= 31);
  wr_sampler_stop();
  close(fd);
}

/* Nobody maps the file, so nobody gets SIGBUS. */
TEST(sampler_survives_a_truncated_ring) {
  int fd;
  watched_ring(&fd);
  wr_rates rates;
  CHECK_EQUAL(wr_sampler_start(1000, 20, 20), 0);
  CHECK_EQUAL(wr_sampler_add(fd, 1), 0);
  REQUIRE(wait_windows(1, 1, &rates));
  CHECK_EQUAL(rates.failed, 0);
  CHECK_EQUAL(ftruncate(fd, 100), 0);
  for (int i = 0; i < 500 && !rates.failed; i++) {
    usleep(10000);
    CHECK_EQUAL(wr_sampler_read(1, &rates), 0);
  }
  CHECK(rates.failed > 0);
  CHECK_EQUAL(ftruncate(fd, sizeof(wr_ring)), 0);
  uint64_t seen = rates.windows;
  CHECK(wait_windows(1, seen + 1, &rates));
  wr_sampler_stop();
  close(fd);
}

static int churn_fd;
static uint32_t churn_stop;

static void *churn(void *base) {
  uint64_t id = (uint64_t)(uintptr_t)base, seed = id;
  wr_rates rates;
  while (!LOAD(&churn_stop)) {
    CHECK_EQUAL(wr_sampler_add(churn_fd, id), 0);
    if (random_next(&seed) & 1) usleep(300);
    CHECK_EQUAL(wr_sampler_read(id, &rates), 0);
    CHECK_EQUAL(wr_sampler_remove(id), 0);
  }
  return NULL;
}

TEST(sampler_rings_come_and_go_during_samples) {
  watched_ring(&churn_fd);
  pthread_t thread[4];
  STORE(&churn_stop, 0);
  CHECK_EQUAL(wr_sampler_start(200, 50, 50), 0);
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&thread[i], NULL, churn, (void *)(i + 1));
  usleep(300000);
  STORE(&churn_stop, 1);
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  wr_sampler_stop();
  close(churn_fd);
}
