/* The frame sampler: watches the probing frames of this node's rings from the agent's process.
 *
 * Source: CCL-D section 4.1.2. Every `period_us` each frame is read once; over a window the number of *value changes* of
 * SendCount and RecvCount is counted per channel. CCL-D's SendRate is the reciprocal of that number: a healthy
 * channel moves its messages between few samples, a slow one changes a little in many of them. It is 0 where nothing
 * changed: no rate, not an infinite one. Beside it stand the messages themselves, so that a reader can take the count
 * per *active* sample (DESIGN section 5.3: per wall second all ranks of a ring look alike).
 */
#ifndef WHICHRANK_SAMPLER_H
#define WHICHRANK_SAMPLER_H

#include "whichrank/ring.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WR_SAMPLED_RINGS = 64 };

typedef struct {
  uint64_t send_changes, recv_changes;   /* samples in which the channel's count differed from the sample before */
  uint64_t send_messages, recv_messages; /* by how much it grew */
  double send_rate, recv_rate;           /* CCL-D: 1 / changes, 0 if there was none */
} wr_channel_rates;

typedef struct {
  uint64_t start_ns, end_ns;             /* CLOCK_MONOTONIC */
  uint64_t samples;                      /* frames read */
  uint64_t active_send, active_recv;     /* samples in which any channel sent, received */
  uint64_t operations;                   /* by how much the frame's operation counter grew */
  wr_channel_rates channel[WR_FRAME_CHANNELS];
} wr_window;

typedef struct {
  uint64_t windows;                      /* complete windows so far; 0: `last` is not set yet */
  uint64_t late;                         /* samples left out because the sampler itself was not scheduled in time */
  uint64_t failed;                       /* the file gave no whole frame: it was truncated or is not readable */
  wr_window last;                        /* the latest complete window */
  wr_window total;                       /* since the ring was added; its rates are 1 / all changes */
} wr_rates;

/* Start the thread. Each `every_ms` it samples for `burst_ms`, once per `period_us`; a burst is a window. 0, or an errno
 * value (EINVAL, EALREADY, or what pthread_create says). */
WR_API int wr_sampler_start(uint32_t period_us, uint32_t burst_ms, uint32_t every_ms);
/* Watch the ring file open at `fd` under the caller's own number `id`. The descriptor is duplicated: the caller may close
 * his at once. 0 or an errno value (EEXIST, ENOSPC beyond 64 rings, EBADF, EMFILE). */
WR_API int wr_sampler_add(int fd, uint64_t id);
/* Forget it; when this returns no sample of it is under way. 0 or ENOENT. */
WR_API int wr_sampler_remove(uint64_t id);
/* On suspicion: sample without a pause; every `every_ms` closes a window. */
WR_API void wr_sampler_always(int on);
/* From now on a burst each `every_ms`. */
WR_API void wr_sampler_every(uint32_t every_ms);
/* 0 or ENOENT. */
WR_API int wr_sampler_read(uint64_t id, wr_rates *out);
/* End the thread and forget all rings. */
WR_API void wr_sampler_stop(void);

#ifdef __cplusplus
}
#endif
#endif
