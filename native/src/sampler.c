/* The frame sampler. It runs in the agent, never in a rank, so it may lock and call the kernel.
 *
 * It reads the frame with pread into a buffer of its own and never touches a mapping: a ring file that somebody
 * truncates would turn the next access of a mapping into SIGBUS and end the agent, and a handler for that signal inside
 * a Python process is worse than the price of the call: 0.44 us for the 1184 bytes against 0.08 us through a
 * mapping, which for 8 rings in the agent's bursts is 0.02 % of a core out of 0.10 %; the rest is waking up.
 *
 * The frame is read while it is written. Each counter is one aligned word, so it is old or new; a block that turned to
 * a new operation is told by its trace ID, and its counts then start from zero.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "helper.h"
#include "whichrank/sampler.h"

typedef struct {
  int used, fd, primed; /* primed: `before` holds a sample of this window or the one before */
  uint64_t id;
  wr_frame before;
  wr_window window;     /* being filled */
  wr_rates rates;
} watched;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static pthread_t thread;
static int running, always;
static uint64_t period_ns, burst_ns, every_ns;
static watched rings[WR_SAMPLED_RINGS];

static const uint64_t SECOND_NS = 1000 * 1000 * 1000;

static void add_counts(wr_channel_rates *to, uint64_t sent, uint64_t received) {
  to->send_changes += sent > 0;
  to->recv_changes += received > 0;
  to->send_messages += sent;
  to->recv_messages += received;
}

static uint64_t grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

static void compare(wr_window *w, const wr_frame *now, const wr_frame *before) {
  uint64_t sent[WR_FRAME_CHANNELS] = {0}, received[WR_FRAME_CHANNELS] = {0}, all_sent = 0, all_received = 0;
  for (int b = 0; b < WR_FRAME_BLOCKS; b++) {
    const wr_block *new = &now->block[b], *old = &before->block[b];
    int same = new->trace_id.comm_id == old->trace_id.comm_id && new->trace_id.counter == old->trace_id.counter;
    for (int c = 0; c < WR_FRAME_CHANNELS; c++) {
      sent[c] += grown(new->channel[c].send_count, same ? old->channel[c].send_count : 0);
      received[c] += grown(new->channel[c].recv_count, same ? old->channel[c].recv_count : 0);
    }
  }
  for (int c = 0; c < WR_FRAME_CHANNELS; c++) {
    add_counts(&w->channel[c], sent[c], received[c]);
    all_sent += sent[c];
    all_received += received[c];
  }
  w->active_send += all_sent > 0;
  w->active_recv += all_received > 0;
  w->operations += grown(now->op_counter, before->op_counter);
}

static void sample(watched *r) {
  wr_frame now;
  ssize_t n = pread(r->fd, &now, sizeof now, offsetof(wr_ring, frame));
  if (n != (ssize_t)sizeof now) {
    r->rates.failed++;
    return;
  }
  if (r->primed) {
    if (memcmp(&now, &r->before, sizeof now)) compare(&r->window, &now, &r->before);
    r->window.samples++;
  }
  r->before = now;
  r->primed = 1;
}

static void set_rates(wr_window *w) {
  for (int c = 0; c < WR_FRAME_CHANNELS; c++) {
    wr_channel_rates *ch = &w->channel[c];
    ch->send_rate = ch->send_changes ? 1.0 / (double)ch->send_changes : 0;
    ch->recv_rate = ch->recv_changes ? 1.0 / (double)ch->recv_changes : 0;
  }
}

static void close_window(watched *r, uint64_t now, int gap_follows) {
  wr_window *w = &r->window, *total = &r->rates.total;
  if (w->samples) {
    w->end_ns = now;
    set_rates(w);
    r->rates.last = *w;
    r->rates.windows++;
    if (!total->start_ns) total->start_ns = w->start_ns;
    total->end_ns = now;
    total->samples += w->samples;
    total->active_send += w->active_send;
    total->active_recv += w->active_recv;
    total->operations += w->operations;
    for (int c = 0; c < WR_FRAME_CHANNELS; c++) {
      total->channel[c].send_changes += w->channel[c].send_changes;
      total->channel[c].recv_changes += w->channel[c].recv_changes;
      total->channel[c].send_messages += w->channel[c].send_messages;
      total->channel[c].recv_messages += w->channel[c].recv_messages;
    }
    set_rates(total);
  }
  memset(w, 0, sizeof *w);
  w->start_ns = gap_follows ? 0 : now;
  if (gap_follows) r->primed = 0; /* what changes in the pause is no change of one sample */
}

/* Wait, unlocked, until the next burst is due, a stop, or a suspicion; meanwhile the pause may become another. */
static void pause_after(uint64_t start) {
  while (running && !always && wr_now_ns() < start + every_ns) {
    uint64_t at = start + every_ns;
    struct timespec t = {(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)};
    pthread_cond_timedwait(&wake, &lock, &t);
  }
}

/* Within a burst: a plain sleep is cheaper than a timed wait, and nobody needs to end it early. */
static void sleep_until(uint64_t at) {
  struct timespec t = {(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)};
  pthread_mutex_unlock(&lock);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
  pthread_mutex_lock(&lock);
}

/* One window of samples; a sample whose time has passed is left out and counted, never made up for in a rush. A ring
   that is added meanwhile has its first window next, a whole one. */
static void run_window(uint64_t start, uint64_t length) {
  uint64_t next = start;
  for (int i = 0; i < WR_SAMPLED_RINGS; i++)
    if (rings[i].used && !rings[i].window.start_ns) rings[i].window.start_ns = start;
  while (running) {
    for (int i = 0; i < WR_SAMPLED_RINGS; i++)
      if (rings[i].used && rings[i].window.start_ns) sample(&rings[i]);
    next += period_ns;
    uint64_t now = wr_now_ns();
    if (now > next) {
      uint64_t missed = (now - next) / period_ns;
      next += missed * period_ns;
      for (int i = 0; missed && i < WR_SAMPLED_RINGS; i++)
        if (rings[i].used) rings[i].rates.late += missed;
    }
    if (next >= start + length) return;
    sleep_until(next);
  }
}

static void *run(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "whichrank-frame");
  prctl(PR_SET_TIMERSLACK, 50000UL); /* the default, whatever the agent was started with */
  pthread_mutex_lock(&lock);
  while (running) {
    uint64_t start = wr_now_ns();
    int without_pause = always || burst_ns >= every_ns;
    run_window(start, without_pause ? every_ns : burst_ns);
    uint64_t end = wr_now_ns();
    for (int i = 0; i < WR_SAMPLED_RINGS; i++)
      if (rings[i].used) close_window(&rings[i], end, !without_pause);
    if (!without_pause) pause_after(start);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

int wr_sampler_start(uint32_t period_us, uint32_t burst_ms, uint32_t every_ms) {
  if (!period_us || !burst_ms || !every_ms) return EINVAL;
  pthread_mutex_lock(&lock);
  int failed = running ? EALREADY : 0;
  if (!failed) {
    period_ns = period_us * UINT64_C(1000);
    burst_ns = burst_ms * UINT64_C(1000000);
    every_ns = every_ms * UINT64_C(1000000);
    running = 1;
    failed = wr_helper_start(&thread, &wake, run);
    if (failed) running = 0;
  }
  pthread_mutex_unlock(&lock);
  return failed;
}

static watched *find(uint64_t id) {
  for (int i = 0; i < WR_SAMPLED_RINGS; i++)
    if (rings[i].used && rings[i].id == id) return &rings[i];
  return NULL;
}

static int add_locked(int fd, uint64_t id) {
  if (find(id)) return EEXIST;
  watched *r = rings;
  while (r < rings + WR_SAMPLED_RINGS && r->used) r++;
  if (r == rings + WR_SAMPLED_RINGS) return ENOSPC;
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return errno;
  memset(r, 0, sizeof *r);
  r->fd = own;
  r->id = id;
  r->used = 1;
  return 0;
}

int wr_sampler_add(int fd, uint64_t id) {
  pthread_mutex_lock(&lock);
  int failed = add_locked(fd, id);
  pthread_mutex_unlock(&lock);
  return failed;
}

static int remove_locked(watched *r) {
  if (!r) return ENOENT;
  close(r->fd);
  r->used = 0;
  return 0;
}

int wr_sampler_remove(uint64_t id) {
  pthread_mutex_lock(&lock);
  int failed = remove_locked(find(id));
  pthread_mutex_unlock(&lock);
  return failed;
}

void wr_sampler_always(int on) {
  pthread_mutex_lock(&lock);
  always = on != 0;
  if (running) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
}

void wr_sampler_every(uint32_t every_ms) {
  pthread_mutex_lock(&lock);
  if (every_ms) every_ns = every_ms * UINT64_C(1000000);
  if (running) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
}

int wr_sampler_read(uint64_t id, wr_rates *out) {
  pthread_mutex_lock(&lock);
  const watched *r = find(id);
  if (r) *out = r->rates;
  pthread_mutex_unlock(&lock);
  return r ? 0 : ENOENT;
}

void wr_sampler_stop(void) {
  pthread_mutex_lock(&lock);
  int was = running;
  running = 0;
  if (was) pthread_cond_signal(&wake);
  pthread_mutex_unlock(&lock);
  if (was) {
    pthread_join(thread, NULL);
    pthread_cond_destroy(&wake);
  }
  pthread_mutex_lock(&lock);
  for (int i = 0; i < WR_SAMPLED_RINGS; i++)
    if (rings[i].used) remove_locked(&rings[i]);
  always = 0;
  pthread_mutex_unlock(&lock);
}
