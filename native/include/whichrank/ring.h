/* The ring: one shared-memory file per rank process, written by sensors, read from outside.
 *
 * Why a file in /dev/shm and not a socket: the evidence must outlive the process. A reader maps the
 * file and sees what the rank was doing while the rank is stopped, holds the GIL, or is dead.
 *
 * Writers never block, allocate or call the kernel. Every counter that the rules of inference rest on
 * (issued, completed, oldest incomplete, who waits) lives in a table of its own, so nothing is derived
 * from records that may have been overwritten. Tables that run full count what they could not hold.
 *
 * Concurrency: any number of writer threads in one process, any number of readers in others. 64-bit
 * fields are written with relaxed atomic stores; table rows carry a version that changes when the row
 * is claimed or released, so a reader that sees the same version before and after has one row, not two.
 *
 * Layout is the contract with Python (`whichrank.ring.layout`); a test compares both.
 */
#ifndef WHICHRANK_RING_H
#define WHICHRANK_RING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define WR_ASSERT static_assert
#else
#define WR_ASSERT _Static_assert
#endif
#define WR_API __attribute__((visibility("default")))

#define WR_MAGIC UINT64_C(0x31474e4952485257) /* "WRHRING1" little endian */
#define WR_VERSION 5u

enum {
  WR_COMMS = 256,          /* communicators alive at once */
  WR_INFLIGHT = 64,        /* operations in flight with a row of their own */
  WR_WAITS = 32,           /* threads blocked on an operation at once */
  WR_PAIRS = 512,          /* (communicator, direction, peer, tag) counters of send/recv */
  WR_CONNECTIONS = 256,    /* TCP connections seen by the socket sensor */
  WR_MEMBERS = 65536,      /* global ranks listed for communicators whose members are no range */
  WR_RECORDS = 8192,       /* completed operations kept; a power of two */
  WR_FRAME_BLOCKS = 8,
  WR_FRAME_CHANNELS = 8,
  WR_SPLITS = 64,          /* all-to-all splits kept per direction */
  WR_SPLIT_ROWS = 16,      /* of so many of the latest all-to-alls, under way or complete */
  WR_PACES = 8,            /* classes of pace at which data came in, see wr_pace */
  WR_COMM_WINDOW = 1024,   /* out-of-order completions tracked per communicator */
  WR_PAIR_WINDOW = 256,    /* and per pair */
  WR_PASSES = 8,           /* of a test of links: 3 round a ring and 4 along a tree at most */
  WR_SIZES = 4,            /* of what is sent in each */
  WR_RESULTS = 96,         /* times that a test takes */
};

/* Kinds of operation. Point-to-point kinds are >= WR_SEND. */
enum wr_kind {
  WR_KIND_NONE = 0, WR_ALL_REDUCE, WR_BROADCAST, WR_REDUCE, WR_ALL_GATHER, WR_REDUCE_SCATTER, WR_ALL_TO_ALL,
  WR_GATHER, WR_SCATTER, WR_BARRIER, WR_MONITORED_BARRIER, WR_ALL_REDUCE_COALESCED, WR_ALL_GATHER_COALESCED,
  WR_REDUCE_SCATTER_COALESCED, WR_OTHER,
  WR_SEND = 32, WR_RECV, WR_RECV_ANY,
  WR_REMOTE_CALL = 40,     /* no operation: a call by torch.distributed.rpc, among the wait rows only */
  WR_MEETING = 42,         /* no operation: a communicator is being made, among the wait rows only */
  WR_STEP = 48,            /* no operation: an optimizer step, among the records */
  WR_WORK = 49,            /* no operation: what a backward pass is given, among the records */
  WR_PASS = 50,            /* no operation: a backward pass begins, or is over, among the records */
};

enum wr_flag {
  WR_FLAG_END_INFERRED = 1u << 0,   /* the end is when a wait returned, not when the backend said so */
  WR_FLAG_UNEVEN = 1u << 1,         /* all-to-all with splits */
  WR_FLAG_SPLITS_CUT = 1u << 2,     /* more than WR_SPLITS splits */
  WR_FLAG_ASYNC = 1u << 3,
  WR_FLAG_FUTURE_TAKEN = 1u << 4,   /* somebody holds the future (DDP's reducer) and may wait on it unseen */
  WR_FLAG_UNTRACKED = 1u << 5,      /* had no in-flight row */
  /* 1u << 6: set by readers of recordings */
  WR_FLAG_FALLBACK = 1u << 7,       /* written by the Python sensor */
};

enum wr_status { WR_DONE = 1, WR_FAILED = 2, WR_DROPPED = 3 /* the work object died before its end was seen */ };

enum wr_wait_how { WR_WAIT_NONE = 0, WR_WAIT_CALL = 1 /* work.wait() */, WR_WAIT_ENTRY = 2 /* inside the op itself */,
                   WR_WAIT_POLL = 3 /* is_completed() in a loop */ };

enum wr_sensor { WR_SENSOR_C10D = 0, WR_SENSOR_SOCKET = 1, WR_SENSOR_NCCL = 2, WR_SENSOR_NCCL_API = 3, WR_SENSORS = 4 };
enum wr_sensor_state { WR_SENSOR_ABSENT = 0, WR_SENSOR_ON = 1, WR_SENSOR_FALLBACK = 2, WR_SENSOR_FAILED = 3 };

/* CCL-D section 5.1: made locally, equal on all ranks of a collective. `extension` is no part of the identity. */
typedef struct { uint64_t comm_id; uint32_t counter; uint32_t extension; } wr_trace_id;

/* Probing frame, CCL-D section 5.1: 32-byte header and 8 blocks of 144 bytes, reused cyclically. */
typedef struct { uint64_t send_count, recv_count; } wr_channel;
typedef struct { wr_trace_id trace_id; wr_channel channel[WR_FRAME_CHANNELS]; } wr_block;
typedef struct {
  uint64_t op_counter;     /* operations begun by this process */
  uint64_t kernel_index;   /* block of the latest one: op_counter mod 8 */
  uint32_t mode;           /* 1: the socket sensor measures */
  uint32_t channels;       /* channels per block */
  uint64_t reserved;
  wr_block block[WR_FRAME_BLOCKS];
} wr_frame;

typedef struct {
  uint32_t state;          /* enum wr_sensor_state */
  char message[60];        /* why it is off, one sentence */
} wr_sensor_status;

typedef struct {
  uint64_t magic;
  uint32_t version, header_bytes;
  uint64_t total_bytes;
  int32_t pid, rank, local_rank, world_size, local_world_size, restart_count;
  uint64_t pid_start_ticks;              /* field 22 of /proc/PID/stat: tells a reused pid apart */
  uint64_t created_monotonic_ns, created_realtime_ns;
  uint64_t heartbeat_ns;                 /* CLOCK_MONOTONIC, every 100 ms by the sensor's own thread */
  uint64_t closed_ns;                    /* set at a clean end of the interpreter */
  uint64_t head;                         /* records pushed since the start */
  uint64_t ordinal;                      /* operations begun since the start */
  uint64_t dropped_records, dropped_comms, dropped_inflight, dropped_waits, dropped_pairs, dropped_connections;
  uint64_t exception_ns;                 /* an uncaught exception reached the interpreter's hook */
  uint64_t first_failure_ns;             /* first operation that ended with an error */
  uint64_t phase_since_ns;
  uint32_t members_used;
  uint32_t group_generation;             /* how often the default group was made */
  uint64_t init_ns;                      /* first communicator made */
  uint64_t collected_ns;                 /* spent in Python's garbage collector */
  char host[64], job[64], phase[32], exception[192], failure[192];
  wr_sensor_status sensor[WR_SENSORS];
} wr_header;

typedef struct {
  uint32_t version;        /* odd while being filled; changes at open and close */
  uint32_t state;          /* 0 free, 1 live, 2 closed */
  uint64_t comm_id;        /* hash of name, members, generation and restart count: equal on all members */
  uint32_t epoch;          /* how often this slot was used */
  uint32_t generation;     /* how often this process made a communicator of this name and members */
  uint32_t size, group_rank;
  int32_t first, stride;   /* members = first + stride * i, or ... */
  int32_t members_at;      /* ... this offset in the members area; -1: a range; -2: unknown */
  uint32_t last_tid;       /* thread that issued the latest operation */
  uint64_t issued;         /* collectives issued */
  uint64_t done;           /* all up to and including this one are complete */
  uint64_t completed;      /* how many completed, in any order */
  uint64_t last_issue_ns, last_done_ns;
  uint64_t opened_ns;
  uint64_t failed;
  uint32_t timeout_ms, last_kind;
  char backend[16];
  char name[64], desc[64];
  uint64_t done_bits[WR_COMM_WINDOW / 64]; /* of op n > done: bit (n-1) % 1024; means complete if set in even, clear in
                                              odd laps (n-1) / 1024 */
  uint8_t reserved[128];
} wr_comm;

typedef struct {
  uint32_t version, state; /* state: 0 free, 1 being issued, 2 issued, 3 started on the device */
  wr_trace_id trace_id;
  uint64_t t_issue_ns, t_start_ns, t_return_ns, wait_since_ns;
  uint64_t count;          /* elements of the input; of a scatter, and of a list to gather into, of the output */
  uint64_t signature;      /* hash over everything that must agree; 0: not comparable by hash */
  uint32_t issue_tid, wait_tid;
  int32_t peer;            /* group rank of root or peer, -1 none */
  uint32_t tag;
  uint32_t ordinal, timeout_ms;
  uint16_t comm_slot;
  uint8_t epoch, kind, dtype, reduce_op;
  uint16_t flags;
  uint64_t polled_ns;      /* last is_completed() by the program */
  uint64_t out_count;      /* elements of the output */
  uint64_t reserved;
} wr_inflight;

typedef struct {
  uint32_t version, tid;   /* tid 0: free */
  uint64_t since_ns;
  uint64_t comm_id;
  uint32_t counter;
  int32_t peer;
  uint16_t comm_slot;
  uint8_t epoch, kind, how, dtype, reduce_op, inflight; /* inflight: row, 255 none */
  uint64_t count;
  uint32_t timeout_ms, tag;
  uint64_t t_issue_ns;
} wr_wait;

/* What an all-to-all sends to each member and expects of it. Kept beside the operations and beyond their end: a rank that
 * left one out meets the sizes of the next, and has often completed that round before a peer aborts over it.
 * `seq` is written last: 2 * ticket + 2. */
typedef struct {
  uint64_t seq;
  uint64_t comm_id;
  uint32_t counter, ordinal;
  uint32_t splits;         /* how many of the arrays below are set; 0: the same for all members */
  uint32_t reserved;
  uint64_t count, out_count; /* elements of the input and of the output */
  uint32_t split_in[WR_SPLITS], split_out[WR_SPLITS]; /* to each member, from each member */
} wr_splits;

/* Counters of send/recv: they count per source, destination and tag, since stages differ by design. */
typedef struct {
  uint64_t key;            /* 0 free (the row is zero then); hash of slot, epoch, kind, peer and tag; valid if issued */
  uint64_t issued, done, completed;
  uint64_t last_issue_ns, last_done_ns;
  uint16_t comm_slot;
  uint8_t epoch, kind;
  int32_t peer;
  uint32_t tag, last_tid;
  uint64_t done_bits[WR_PAIR_WINDOW / 64]; /* as in wr_comm */
} wr_pair;

/* Bytes that were read, and the time since the read before, summed over the reads of one class of pace. What a slow
 * way lets through comes at its pace, read by read; what was held up at its sender comes at once when it comes. */
typedef struct { uint64_t bytes, ns; } wr_pace;

typedef struct {
  uint32_t version, state; /* 0 free, 1 open, 2 closed */
  uint8_t local_addr[16], remote_addr[16]; /* IPv6, or IPv4 mapped */
  uint16_t local_port, remote_port;
  int32_t fd;
  uint64_t messages_sent, bytes_sent, messages_received, bytes_received;
  uint64_t last_send_ns, last_receive_ns;
  wr_pace pace[WR_PACES];  /* class i: about 2^(2i+16) to 2^(2i+19) bytes per second; the first and last are open */
} wr_connection;

/* One completed operation, 64 bytes. `seq` is written last: 2 * index + 2 of the push that filled it. */
typedef struct {
  uint64_t seq;
  uint64_t t_issue_ns, t_start_ns, t_end_ns; /* CLOCK_MONOTONIC; start 0: not measured */
  uint64_t count;
  uint32_t counter;        /* place in its communicator or pair, from 1 */
  uint32_t ordinal;        /* place among all operations of the process, from 1 */
  uint32_t wait_us;        /* how long a thread was blocked on it, saturating */
  int32_t peer;
  uint16_t comm_slot;
  uint8_t epoch, kind, dtype, reduce_op, flags, status;
} wr_record;

/* The gate: where a process waits before its next operation while it is closed. All ranks of a job are kept from the same
 * point of their programs on, so that none waits in an operation that another has not entered.
 *
 * The agent writes the first part, then the word `gate_closed` of the ring: an operation reads this one word. While it
 * is set, a thread that trains and has come as far as told waits here. The gate opens by itself if nobody renews it: whoever closed it may be
 * dead. */
enum wr_opened { WR_OPENED_NOT = 0, WR_OPENED_TOLD = 1, WR_OPENED_NOT_RENEWED = 2, WR_OPENED_TOO_LONG = 3 };
enum wr_test { WR_TEST_NONE = 0, WR_TEST_COMPUTE = 1, WR_TEST_MEMORY = 2, WR_TEST_LINKS = 3 };

/* What a process does in one pass of a test of links: `peer` is a rank of the communicator, -1: nothing. */
typedef struct { int32_t peer; uint32_t sends; } wr_pass;

typedef struct {
  /* by the agent */
  uint32_t pause;          /* its number, from 1 */
  uint32_t renewals;       /* another value: it is still wanted */
  uint64_t at_ordinal;     /* keep back what comes after this operation; 0: see at_step */
  uint32_t at_step;        /* keep back what comes after this optimizer step; 0: see at_ordinal */
  uint32_t longest_ms;     /* however often it is renewed */
  uint32_t test;           /* number of the test that the process is to make in this pause, from 1; written last */
  uint32_t test_kind, test_slot, test_repeats, test_passes, test_sizes;
  uint64_t test_bytes[WR_SIZES];
  wr_pass test_pass[WR_PASSES];
  /* by the process */
  uint64_t arrived_ns, arrived_ordinal, opened_ns;
  uint32_t steps;          /* optimizer steps made */
  uint32_t claimed;        /* the pause in which some thread was first to come */
  uint32_t arrived;        /* the pause in which it waits, or has waited; written after its time and ordinal */
  uint32_t opened_by;      /* enum wr_opened */
  uint32_t opened;         /* the pause that is over for it; written last */
  uint32_t tested;         /* number of the test that it has made; written last */
  uint32_t results;
  float result_s[WR_RESULTS];
  char problem[100];       /* why there are none */
} wr_gate;

/* Shares of the work: which microbatches of an iteration the replica of this process computes. A program that lets its
 * shares be changed says so here, and the agent tells others. That all ranks change at the same iteration is for them to
 * agree on: so the share before the newest one stays readable. */
typedef struct { uint32_t first, count; } wr_share;

typedef struct {
  /* by the agent */
  wr_share told[2];        /* of version v: told[v % 2] */
  uint32_t newest;         /* its version, from 1; written last. The next one is told when all ranks use this one */
  /* by the process */
  uint32_t used;           /* the version in use; 0: all replicas have as much */
  uint32_t microbatches;   /* of an iteration, of all replicas; 0: shares cannot be changed */
  uint32_t multiple;       /* of which each share is one */
  uint32_t replica, replicas; /* written before `microbatches` */
} wr_shares;

enum { WR_PLACE_SAVE = 1 << 30 };

/* Places of ranks: which stage of which replica a process is. A program that can hand its state to another process says so
 * here. All ranks change between the same two iterations; the whole order is known to them by what each says of its own. */
typedef struct {
  /* by the agent */
  uint32_t told[2];        /* place, from 0, of version v: told[v % 2]; with WR_PLACE_SAVE: stay, and write the state to disk */
  uint32_t newest;         /* its version, from 1; written last. The next one is told when all ranks use this one */
  /* by the process */
  uint32_t used;           /* the version in use, or that was given up; 0: each rank is where it was at the start */
  uint32_t failed;         /* the same version if it was given up: all are as before; else 0 */
  uint32_t place;          /* its own */
  uint32_t took_ms;        /* by the latest change */
  uint32_t ranks;          /* of the job; 0: places cannot be changed. Written last of what is offered */
  uint32_t stages, stage_stride;     /* a place p is of stage p / stage_stride % stages */
  uint32_t replicas, replica_stride; /* and of replica p / replica_stride % replicas */
  uint32_t microbatches;   /* that a replica computes in an iteration */
  uint32_t saves;          /* whether it can write its state to disk */
  uint64_t bytes;          /* that this process would hand over */
} wr_places;

typedef struct {
  wr_header header;
  wr_frame frame;
  uint16_t frame_peer[WR_FRAME_BLOCKS][WR_FRAME_CHANNELS]; /* connection + 1 behind each channel; 0 unused */
  uint64_t inflight_used;                                  /* bit maps of claimed rows */
  uint32_t waits_used;
  uint32_t splits_head;    /* all-to-alls begun; wraps */
  uint32_t step_tid;       /* thread that made the latest optimizer step, 0 none */
  uint32_t gate_closed;    /* see wr_gate; 0: open */
  wr_inflight inflight[WR_INFLIGHT];
  wr_wait wait[WR_WAITS];
  wr_pair pair[WR_PAIRS];
  wr_connection connection[WR_CONNECTIONS];
  wr_comm comm[WR_COMMS];
  wr_splits splits[WR_SPLIT_ROWS];
  int32_t members[WR_MEMBERS];
  wr_record record[WR_RECORDS];
  wr_gate gate;
  wr_shares shares;
  wr_places places;
} wr_ring;

WR_ASSERT(sizeof(wr_trace_id) == 16, "trace id");
WR_ASSERT(sizeof(wr_frame) == 1184, "probing frame: CCL-D section 5.1");
WR_ASSERT(sizeof(wr_inflight) == 128, "in-flight row");
WR_ASSERT(sizeof(wr_splits) == 560, "splits of an all-to-all");
WR_ASSERT(sizeof(wr_wait) == 64, "wait row");
WR_ASSERT(sizeof(wr_record) == 64, "record");
WR_ASSERT(sizeof(wr_comm) == 512, "communicator row");
WR_ASSERT(sizeof(wr_ring) <= 1 << 20, "the whole ring fits one MiB");

/* What a sensor knows of one operation. It lives in the sensor's own memory (beside the work object);
 * the in-flight row mirrors it for readers. Zero it, fill the first part, then call wr_op_begin. */
typedef struct {
  /* in */
  uint16_t comm_slot;
  uint8_t kind, dtype, reduce_op;
  uint16_t flags;
  int32_t peer;
  uint32_t tag, timeout_ms;
  uint64_t count, out_count, signature;
  uint32_t splits;
  const int64_t *split_in, *split_out; /* read by wr_op_begin only */
  /* out */
  uint8_t epoch;
  int16_t row;             /* in-flight row, -1 none */
  int16_t pair;            /* pair row, -1 none */
  uint32_t counter, ordinal, tid;
  uint64_t comm_id, t_issue_ns, t_start_ns, wait_ns, wait_since_ns;
  uint32_t ended;          /* set once: completion and destruction may race */
  uint32_t holders;        /* threads that touch its in-flight row just now, and whether it ended */
} wr_op;

typedef struct {
  int32_t rank, local_rank, world_size, local_world_size, restart_count;
  const char *host, *job;
} wr_identity;

/* ---- life of a ring -------------------------------------------------------------------------------- */

/* Create the ring file of this process (0600) and map it. NULL and errno on failure; nothing is left then.
 * The whole file is allocated up front, so that a full /dev/shm fails here and not with SIGBUS later. */
WR_API wr_ring *wr_ring_create(const char *path, const wr_identity *identity);
/* The ring of this process, made on first call as `<dir>/<pid>.ring`; also hands it to the socket
 * sensor if that is preloaded, and starts the heartbeat. NULL when it cannot be made; it is not tried again. */
WR_API wr_ring *wr_open_process_ring(const char *dir, const wr_identity *identity, void (*on_beat)(void));
/* The ring of this process, NULL if there is none, it was switched off, or this is a forked child. */
WR_API wr_ring *wr_process_ring(void);
/* Switch writing off for the rest of this process; the file stays readable. */
WR_API void wr_ring_disable(void);
WR_API void wr_ring_close(void);
WR_API void wr_ring_set_rank(wr_ring *ring, int32_t rank, int32_t world_size);
WR_API void wr_sensor_set(wr_ring *ring, int sensor, int state, const char *message);
WR_API void wr_note_exception(wr_ring *ring, const char *text);
WR_API void wr_note_failure(wr_ring *ring, const char *text);
WR_API void wr_phase_set(wr_ring *ring, const char *phase);
/* Start the thread that writes the heartbeat every 100 ms and calls `on_beat` (may be NULL). */
WR_API int wr_heartbeat_start(wr_ring *ring, void (*on_beat)(void));

/* ---- communicators (cold) -------------------------------------------------------------------------- */

/* A slot for a communicator, -1 when the table is full (counted). `members` has `size` global ranks or is NULL.
 * The generation is counted here, per name and members. */
WR_API int wr_comm_open(wr_ring *ring, const char *name, const char *desc, const char *backend, uint32_t size,
                        uint32_t group_rank, const int32_t *members, uint32_t timeout_ms);
WR_API void wr_comm_close(wr_ring *ring, int slot);
/* Its name, NULL if there is none of this number. */
WR_API const char *wr_comm_name(const wr_ring *ring, int slot);
/* Its timeout was changed: operations issued from now on have this one. */
WR_API void wr_comm_set_timeout(wr_ring *ring, int slot, uint32_t timeout_ms);

/* ---- operations (hot) ------------------------------------------------------------------------------ */

WR_API uint64_t wr_now_ns(void);
WR_API void wr_op_begin(wr_ring *ring, wr_op *op);                  /* entered; may be blocked inside */
WR_API void wr_op_issued(wr_ring *ring, wr_op *op);                 /* the call returned */
WR_API void wr_op_flag(wr_ring *ring, wr_op *op, uint16_t flags);
WR_API void wr_op_polled(wr_ring *ring, wr_op *op);
WR_API int wr_wait_begin(wr_ring *ring, wr_op *op, int how);        /* a wait row, -1 none */
WR_API void wr_wait_end(wr_ring *ring, wr_op *op, int row);
WR_API void wr_op_end(wr_ring *ring, wr_op *op, int status);        /* idempotent */
/* This thread waits for the answer of a remote call; `peer` is the *global* rank that answers, -1 unknown. Such a row
 * has no communicator (comm_id 0, comm_slot UINT16_MAX). A wait row, -1 none. */
WR_API int wr_remote_wait_begin(wr_ring *ring, int32_t peer);
/* This thread makes a communicator, for which it needs all its members: `size` global ranks, `first` and so on by
 * `stride`; size 0 unknown. The row has them in `peer`, `tag` and `count`, and no communicator. A wait row, -1 none. */
WR_API int wr_meeting_begin(wr_ring *ring, int32_t first, uint32_t stride, uint32_t size);
/* The end of a remote call or of a meeting. */
WR_API void wr_outside_wait_end(wr_ring *ring, int row);
/* Push one record: the tail of wr_op_end, on its own for sensors without an op. `seq` is ignored. */
WR_API void wr_push(wr_ring *ring, const wr_record *record);
/* The trace ID that wr_op_begin gives to operation `counter`. */
WR_API wr_trace_id wr_trace(const wr_ring *ring, int comm_slot, uint32_t counter);

/* ---- iterations (cold) ----------------------------------------------------------------------------- */

/* The optimizer makes a step: a record of kind WR_STEP, whose `counter` counts the steps of this process and whose
 * `ordinal` is that of the operation begun last. Several without an operation in between are one. */
WR_API void wr_step(wr_ring *ring);
/* A backward pass begins, or the program says what it computes: a record of kind WR_WORK, with `elements` as its `count`
 * and `length`, that of the sequences among them, as its `counter`; 0: not known. */
WR_API void wr_work(wr_ring *ring, uint64_t elements, uint32_t length);
/* A backward pass begins, or one that began then is over: a record of kind WR_PASS with these times, by CLOCK_MONOTONIC;
 * `ended_ns` 0: it begins. */
WR_API void wr_backward(wr_ring *ring, uint64_t began_ns, uint64_t ended_ns);
/* The garbage collector has kept the process for so long. */
WR_API void wr_collected(wr_ring *ring, uint64_t ns);

/* ---- the gate ------------------------------------------------------------------------------------------------------ */

/* Before an operation: wait where the gate is closed and this process has come as far as told. Only a thread that trains
 * waits: the main one, the one that makes optimizer steps, and those of autograd. Not to be called with Python's lock
 * held. */
WR_API void wr_gate_pass(wr_ring *ring);
/* Whether it is closed: what an operation asks first. */
WR_API int wr_gate_is_closed(const wr_ring *ring);
/* What makes a test, in a thread of its own while the process waits; it fills `results`, `result_s` and `problem`. NULL:
 * nobody does. */
WR_API void wr_gate_set_tester(void (*test)(wr_gate *gate));
/* Inside of a test: whether training goes on: told, no longer renewed, or too long closed. 0 in any other thread. */
WR_API int wr_gate_is_opening(const wr_ring *ring);
/* Inside of a test: what `question` returns in the thread that trains; -1 if that goes on, and in any other thread. */
WR_API int wr_gate_ask(int (*question)(void));

/* ---- shares of the work -------------------------------------------------------------------------------------------- */

/* Other shares may be told from now on. */
WR_API void wr_shares_offer(wr_ring *ring, uint32_t microbatches, uint32_t multiple, uint32_t replica, uint32_t replicas);
/* The version of the newest share that was told, 0: none. */
WR_API uint32_t wr_shares_newest(const wr_ring *ring);
/* The share of a version, which is the newest one or the one before. */
WR_API wr_share wr_shares_of(const wr_ring *ring, uint32_t version);
/* This version is in use. */
WR_API void wr_shares_use(wr_ring *ring, uint32_t version);

/* ---- places of ranks ------------------------------------------------------------------------------------------------- */

/* Another place may be told from now on. */
WR_API void wr_places_offer(wr_ring *ring, const wr_places *offered);
/* The version of the newest place that was told, 0: none. */
WR_API uint32_t wr_places_newest(const wr_ring *ring);
/* The place of a version, which is the newest one or the one before. */
WR_API uint32_t wr_places_of(const wr_ring *ring, uint32_t version);
/* All ranks have changed to this version, or have given it up. */
WR_API void wr_places_used(wr_ring *ring, uint32_t version, uint32_t place, uint32_t took_ms, int failed);

/* ---- transport ------------------------------------------------------------------------------------- */

/* Count one message on a channel of the current block; `connection` is a row of the connection table. */
WR_API void wr_frame_count(wr_ring *ring, int connection, int received);
/* What has come in on all connections so far, by the class of its pace. */
WR_API void wr_arrivals(const wr_ring *ring, wr_pace paces[WR_PACES]);

/* The layout as JSON: sizes, offsets, constants. For the test that compares it with Python's. */
WR_API const char *wr_layout_json(void);

#ifdef __cplusplus
}
#endif
#endif
