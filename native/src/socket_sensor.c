/* The socket sensor: LD_PRELOAD around the calls that move bytes over TCP.
 *
 * It makes TCP a narrow waist: Gloo (writev, recv), NCCL's socket transport, MPI over TCP all pass here. Per connection
 * it counts messages and bytes, keeps the last times and sums up at what pace data came in; per operation it counts into
 * the probing frame.
 *
 * It is loaded into every process of the job, so its rule is to cost nothing where it has nothing to say. Each file
 * descriptor has one 16-bit entry: unknown, other, or a row of the connection table. After a call that moved bytes one
 * load decides; a descriptor is asked about once, at its first I/O (getsockopt), and forgotten by close, dup2, connect
 * and accept. No lock, no allocation, errno is kept, and all of it may run in a signal handler.
 *
 * The ring belongs to a library that Python loads later, perhaps privately, so the two meet by name: whoever makes
 * the ring looks up `wr_socket_attach` here and calls it. Until then the facts are kept in a table of our own, with the
 * same rows, so connections that are older than the ring are in it too.
 *
 * Two ways to be in another process's memory: after fork the child's handler drops the ring. A child of vfork (Python's
 * subprocess closes descriptors there) shares our memory without running any handler; so close asks for the pid
 * before it declares a TCP connection closed, which costs a system call only there.
 *
 * Some closes never come by (libuv calls the kernel itself, stdio stays inside libc). A connection that was idle for
 * 100 ms is therefore compared with what the kernel says before the next message is counted on it.
 *
 * Not seen: sendmmsg, recvmmsg, sendfile, splice, io_uring (none of the transports above uses them), and descriptors
 * from 65536 on. A child made by a bare clone() would count on as its parent; nothing in a training job does that.
 */
#define _GNU_SOURCE 1
#undef _FORTIFY_SOURCE /* its inline wrappers have the names that are defined here */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "atomics.h"
#include "whichrank/transport.h"

enum { FDS = 65536, UNKNOWN = 0, OTHER = 1, NO_ROW = 2 /* TCP, but the table is full */, FIRST_ROW = 3 };
static const uint64_t IDLE_NS = 100 * 1000 * 1000;

static uint16_t entry[FDS];
static uint32_t fds_used;                       /* entries beyond were never written */
static wr_connection own_table[WR_CONNECTIONS]; /* until a ring is attached */
static wr_connection *table = own_table;
static wr_ring *ring;
static uint64_t dropped_before;                 /* connections without a row before the ring came */
static uint32_t store_port;                     /* MASTER_PORT: kept in the table, not counted in the frame */
static int32_t owner_pid;
static uint32_t off;                            /* WHICHRANK_DISABLE */

static ssize_t (*real_send)(int, const void *, size_t, int);
static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_recv)(int, void *, size_t, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_readv)(int, const struct iovec *, int);
static ssize_t (*real_read_chk)(int, void *, size_t, size_t);
static ssize_t (*real_recv_chk)(int, void *, size_t, size_t, int);
static ssize_t (*real_recvfrom_chk)(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
static int (*real_socket)(int, int, int);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_accept)(int, struct sockaddr *, socklen_t *);
static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*real_close)(int);
static int (*real_dup)(int);
static int (*real_dup2)(int, int);
static int (*real_dup3)(int, int, int);

/* Other libraries' constructors may call before ours has run: then the first call looks its function up. */
#define REAL(name) \
  (__extension__({ \
    if (__builtin_expect(!real_##name, 0)) *(void **)(&real_##name) = dlsym(RTLD_NEXT, #name); \
    real_##name; \
  }))
#define REAL_CHECKED(name) \
  (__extension__({ \
    if (__builtin_expect(!real_##name##_chk, 0)) *(void **)(&real_##name##_chk) = dlsym(RTLD_NEXT, "__" #name "_chk"); \
    real_##name##_chk; \
  }))

/* ---- what a descriptor is (cold) ------------------------------------------------------------------- */

static void set_entry(int fd, uint16_t value) {
  STORE(&entry[fd], value);
  uint32_t used = LOAD(&fds_used);
  while (used <= (uint32_t)fd && !wr_cas32(&fds_used, &used, (uint32_t)fd + 1)) {}
}

static int set_address(const struct sockaddr_storage *from, uint8_t *address, uint16_t *port) {
  if (from->ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)from;
    memset(address, 0, 10);
    address[10] = address[11] = 0xff;
    memcpy(address + 12, &v4->sin_addr, 4);
    *port = ntohs(v4->sin_port);
    return 1;
  }
  if (from->ss_family != AF_INET6) return 0;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)from;
  memcpy(address, &v6->sin6_addr, 16);
  *port = ntohs(v6->sin6_port);
  return 1;
}

/* 1: a TCP connection, with its ends; 0: something else; -1: TCP, but with no peer (any more). */
static int ask_kernel(int fd, wr_endpoints *ends) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) || protocol != IPPROTO_TCP) return 0;
  struct sockaddr_storage local, remote;
  socklen_t local_size = sizeof local, remote_size = sizeof remote;
  if (getpeername(fd, (struct sockaddr *)&remote, &remote_size)) return -1;
  if (getsockname(fd, (struct sockaddr *)&local, &local_size)) return -1;
  memset(ends, 0, sizeof *ends);
  return set_address(&local, ends->local_addr, &ends->local_port) &&
         set_address(&remote, ends->remote_addr, &ends->remote_port);
}

static uint16_t classify(int fd) {
  wr_endpoints ends;
  int kind = ask_kernel(fd, &ends);
  if (kind < 0) return UNKNOWN;
  uint16_t found = OTHER;
  if (kind) {
    int row = wr_connection_open(LOAD_ACQUIRE(&table), &ends, fd);
    wr_ring *attached = LOAD_ACQUIRE(&ring);
    if (row < 0) ADD(attached ? &attached->header.dropped_connections : &dropped_before, 1);
    found = row < 0 ? NO_ROW : (uint16_t)(FIRST_ROW + row);
  }
  set_entry(fd, found);
  return found;
}

/* The row was idle or closed: is it still this descriptor's? */
static uint16_t verify(int fd, uint16_t known) {
  wr_endpoints ends;
  if (ask_kernel(fd, &ends) == 1 && wr_connection_is(&LOAD_ACQUIRE(&table)[known - FIRST_ROW], &ends)) return known;
  wr_connection *row = &LOAD_ACQUIRE(&table)[known - FIRST_ROW];
  if (LOAD(&row->fd) == fd) wr_connection_close(row);
  return classify(fd);
}

/* ---- after a call that moved bytes (hot) ----------------------------------------------------------- */

/* hot */

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int is_store(const wr_connection *c) {
  uint32_t store = LOAD(&store_port);
  return store && (LOAD(&c->remote_port) == store || LOAD(&c->local_port) == store);
}

static void count(int fd, uint16_t found, size_t bytes, int received) {
  int error = errno; /* asking the kernel may change it */
  wr_ring *attached = LOAD_ACQUIRE(&ring);
  if (found == UNKNOWN) found = classify(fd);
  if (found >= FIRST_ROW) {
    wr_connection *c = &LOAD_ACQUIRE(&table)[found - FIRST_ROW];
    uint64_t now = now_ns(), last = wr_connection_last_ns(c);
    if (__builtin_expect(LOAD(&c->state) != WR_CONNECTION_OPEN || (last && now > last + IDLE_NS), 0)) {
      found = verify(fd, found);
      c = found >= FIRST_ROW ? &LOAD_ACQUIRE(&table)[found - FIRST_ROW] : NULL;
    }
    if (c) wr_connection_count(c, received, bytes, now);
    if (c && is_store(c)) attached = NULL;
  }
  if (attached && found >= NO_ROW) wr_frame_count_inline(attached, found - FIRST_ROW, received); /* NO_ROW: -1 */
  errno = error;
}

static inline void note(int fd, ssize_t moved, int received) {
  if (moved <= 0 || (unsigned)fd >= FDS) return;
  uint16_t found = LOAD(&entry[fd]);
  if (__builtin_expect(found == OTHER || LOAD(&off), 1)) return;
  count(fd, found, (size_t)moved, received);
}

/* end hot */

/* ---- a descriptor changes its meaning -------------------------------------------------------------- */

static void forget(int fd) {
  if ((unsigned)fd >= FDS) return;
  uint16_t found = LOAD(&entry[fd]);
  if (found == UNKNOWN) return;
  if (found >= FIRST_ROW) {
    if (getpid() != LOAD(&owner_pid)) return; /* a child of vfork: this memory is its parent's */
    wr_connection *c = &LOAD_ACQUIRE(&table)[found - FIRST_ROW];
    if (LOAD(&c->fd) == fd) wr_connection_close(c);
  }
  STORE(&entry[fd], UNKNOWN);
}

/* ---- life ------------------------------------------------------------------------------------------ */

static void read_store_port(void) {
  const char *text = getenv("MASTER_PORT");
  long port = text ? strtol(text, NULL, 10) : 0;
  if (port > 0 && port < 65536) STORE(&store_port, (uint32_t)port);
}

/* Inherited connections are the parent's story; in the child each descriptor is asked about anew. */
static void start_anew_in_child(void) {
  STORE(&ring, NULL);
  STORE(&table, own_table);
  uint32_t used = LOAD(&fds_used);
  for (uint32_t fd = 0; fd < used; fd++)
    if (entry[fd] >= NO_ROW) entry[fd] = UNKNOWN;
  for (int i = 0; i < WR_CONNECTIONS && own_table[i].version; i++) memset(&own_table[i], 0, sizeof own_table[i]);
  dropped_before = 0;
  STORE(&owner_pid, getpid());
}

__attribute__((constructor)) static void start(void) {
  const char *disable = getenv("WHICHRANK_DISABLE");
  off = disable && *disable && strcmp(disable, "0") != 0;
  owner_pid = getpid();
  read_store_port();
  (void)REAL(send), (void)REAL(sendto), (void)REAL(sendmsg), (void)REAL(write), (void)REAL(writev);
  (void)REAL(recv), (void)REAL(recvfrom), (void)REAL(recvmsg), (void)REAL(read), (void)REAL(readv);
  (void)REAL_CHECKED(read), (void)REAL_CHECKED(recv), (void)REAL_CHECKED(recvfrom);
  (void)REAL(socket), (void)REAL(connect), (void)REAL(accept), (void)REAL(accept4);
  (void)REAL(close), (void)REAL(dup), (void)REAL(dup2), (void)REAL(dup3);
  pthread_atfork(NULL, NULL, start_anew_in_child);
}

/* Whose row it is, read while other threads open and close rows: 0 while it changes hands. */
static int read_ends(const wr_connection *c, wr_endpoints *ends) {
  const wr_endpoint_word *from = (const wr_endpoint_word *)(const void *)c->local_addr;
  wr_endpoint_word *to = (wr_endpoint_word *)(void *)ends;
  uint32_t version = LOAD_ACQUIRE(&c->version);
  for (int i = 0; i < WR_ENDPOINT_WORDS; i++) to[i] = LOAD_ACQUIRE(&from[i]);
  return !(version & 1) && LOAD(&c->version) == version;
}

/* A row of our own is entered in the ring, which nobody writes yet. One that changes hands just now is left out: its
 * next message finds no open row there and asks the kernel. */
static void copy_row(wr_connection *to, const wr_connection *from) {
  uint32_t state = LOAD_ACQUIRE(&from->state);
  wr_endpoints ends;
  if (!state || !read_ends(from, &ends)) return;
  memcpy(to->local_addr, &ends, sizeof ends);
  to->fd = LOAD(&from->fd);
  STORE(&to->last_send_ns, LOAD(&from->last_send_ns));
  STORE(&to->last_receive_ns, LOAD(&from->last_receive_ns));
  STORE(&to->state, state);
  STORE_RELEASE(&to->version, 2u);
}

/* Take what was counted into our own row, if both are still of one connection; again, since a thread may still be adding
 * to it when the table turns. */
static void move_counts(wr_connection *to, wr_connection *from) {
  wr_endpoints old, new;
  if (!read_ends(from, &old) || !read_ends(to, &new) || memcmp(&old, &new, sizeof old)) return;
  uint64_t *const source[] = {&from->messages_sent, &from->bytes_sent, &from->messages_received, &from->bytes_received};
  uint64_t *const target[] = {&to->messages_sent, &to->bytes_sent, &to->messages_received, &to->bytes_received};
  for (int i = 0; i < 4; i++) ADD(target[i], __atomic_exchange_n(source[i], 0, __ATOMIC_RELAXED));
  for (int i = 0; i < WR_PACES; i++) {
    ADD(&to->pace[i].bytes, __atomic_exchange_n(&from->pace[i].bytes, 0, __ATOMIC_RELAXED));
    ADD(&to->pace[i].ns, __atomic_exchange_n(&from->pace[i].ns, 0, __ATOMIC_RELAXED));
  }
}

/* Write into `attached` from now on; NULL: into our own table again, and nothing into the ring. */
WR_API void wr_socket_attach(wr_ring *attached) {
  if (LOAD(&off)) return;
  if (!attached) {
    STORE_RELEASE(&ring, NULL);
    STORE_RELEASE(&table, own_table);
    return;
  }
  if (LOAD(&ring) == attached) return;
  STORE(&owner_pid, getpid());
  read_store_port();
  for (int i = 0; i < WR_CONNECTIONS; i++) copy_row(&attached->connection[i], &own_table[i]);
  ADD(&attached->header.dropped_connections, __atomic_exchange_n(&dropped_before, 0, __ATOMIC_RELAXED));
  STORE_RELEASE(&table, attached->connection);
  STORE_RELEASE(&ring, attached);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < WR_CONNECTIONS; i++) move_counts(&attached->connection[i], &own_table[i]);
    sched_yield();
  }
  STORE(&attached->frame.mode, 1u);
  STORE_RELEASE(&attached->header.sensor[WR_SENSOR_SOCKET].state, (uint32_t)WR_SENSOR_ON);
}

/* For jobs that name their store otherwise than by MASTER_PORT (init_method="tcp://..."). */
WR_API void wr_socket_store_port(int port) {
  if (port > 0 && port < 65536) STORE(&store_port, (uint32_t)port);
}

/* ---- the calls ------------------------------------------------------------------------------------- */

WR_API ssize_t send(int fd, const void *buffer, size_t size, int flags) {
  ssize_t moved = REAL(send)(fd, buffer, size, flags);
  note(fd, moved, 0);
  return moved;
}

WR_API ssize_t sendto(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *to, socklen_t to_size) {
  ssize_t moved = REAL(sendto)(fd, buffer, size, flags, to, to_size);
  note(fd, moved, 0);
  return moved;
}

WR_API ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  ssize_t moved = REAL(sendmsg)(fd, message, flags);
  note(fd, moved, 0);
  return moved;
}

WR_API ssize_t write(int fd, const void *buffer, size_t size) {
  ssize_t moved = REAL(write)(fd, buffer, size);
  note(fd, moved, 0);
  return moved;
}

WR_API ssize_t writev(int fd, const struct iovec *parts, int n) {
  ssize_t moved = REAL(writev)(fd, parts, n);
  note(fd, moved, 0);
  return moved;
}

/* A look ahead or at the error queue takes no message. */
static inline void note_received(int fd, ssize_t moved, int flags) {
  if (!(flags & (MSG_PEEK | MSG_ERRQUEUE))) note(fd, moved, 1);
}

WR_API ssize_t recv(int fd, void *buffer, size_t size, int flags) {
  ssize_t moved = REAL(recv)(fd, buffer, size, flags);
  note_received(fd, moved, flags);
  return moved;
}

WR_API ssize_t recvfrom(int fd, void *restrict buffer, size_t size, int flags, struct sockaddr *restrict from,
                        socklen_t *restrict from_size) {
  ssize_t moved = REAL(recvfrom)(fd, buffer, size, flags, from, from_size);
  note_received(fd, moved, flags);
  return moved;
}

WR_API ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  ssize_t moved = REAL(recvmsg)(fd, message, flags);
  note_received(fd, moved, flags);
  return moved;
}

WR_API ssize_t read(int fd, void *buffer, size_t size) {
  ssize_t moved = REAL(read)(fd, buffer, size);
  note(fd, moved, 1);
  return moved;
}

WR_API ssize_t readv(int fd, const struct iovec *parts, int n) {
  ssize_t moved = REAL(readv)(fd, parts, n);
  note(fd, moved, 1);
  return moved;
}

/* What a program built with _FORTIFY_SOURCE calls instead. */
WR_API ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room) {
  ssize_t moved = REAL_CHECKED(read)(fd, buffer, size, room);
  note(fd, moved, 1);
  return moved;
}

WR_API ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags) {
  ssize_t moved = REAL_CHECKED(recv)(fd, buffer, size, room, flags);
  note_received(fd, moved, flags);
  return moved;
}

WR_API ssize_t __recvfrom_chk(int fd, void *restrict buffer, size_t size, size_t room, int flags,
                              struct sockaddr *restrict from, socklen_t *restrict from_size) {
  ssize_t moved = REAL_CHECKED(recvfrom)(fd, buffer, size, room, flags, from, from_size);
  note_received(fd, moved, flags);
  return moved;
}

WR_API int socket(int domain, int type, int protocol) {
  int fd = REAL(socket)(domain, type, protocol);
  forget(fd);
  return fd;
}

WR_API int connect(int fd, const struct sockaddr *to, socklen_t size) {
  forget(fd);
  return REAL(connect)(fd, to, size);
}

WR_API int accept(int fd, struct sockaddr *restrict from, socklen_t *restrict size) {
  int accepted = REAL(accept)(fd, from, size);
  forget(accepted);
  return accepted;
}

WR_API int accept4(int fd, struct sockaddr *restrict from, socklen_t *restrict size, int flags) {
  int accepted = REAL(accept4)(fd, from, size, flags);
  forget(accepted);
  return accepted;
}

WR_API int close(int fd) {
  forget(fd); /* before: afterwards another thread may own the number */
  return REAL(close)(fd);
}

WR_API int dup(int fd) {
  int copy = REAL(dup)(fd);
  forget(copy);
  return copy;
}

WR_API int dup2(int from, int to) {
  if (from != to) forget(to);
  return REAL(dup2)(from, to);
}

WR_API int dup3(int from, int to, int flags) {
  if (from != to) forget(to);
  return REAL(dup3)(from, to, flags);
}
