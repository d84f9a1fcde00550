/* The socket sensor, compiled into a program of its own, so that sanitizers and gcov see it. Its functions take the place
 * of libc's here as they do under LD_PRELOAD; what it does to whole programs is tested from Python (tests/native). */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"
#include "whichrank/transport.h"

void wr_socket_attach(wr_ring *attached);
void wr_socket_store_port(int port);
ssize_t __read_chk(int fd, void *buffer, size_t size, size_t room);
ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *restrict buffer, size_t size, size_t room, int flags,
                       struct sockaddr *restrict from, socklen_t *restrict from_size);

static wr_ring *ring_attached(void) {
  wr_ring *ring = ring_new();
  wr_op op = op_new(comm_new(ring, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  wr_socket_attach(ring);
  return ring;
}

static uint16_t port_of(int fd, int remote) {
  struct sockaddr_in at;
  socklen_t size = sizeof at;
  int failed = remote ? getpeername(fd, (struct sockaddr *)&at, &size) : getsockname(fd, (struct sockaddr *)&at, &size);
  return failed ? 0 : ntohs(at.sin_port);
}

/* Both ends of a TCP connection of this process, without delay. */
static int pair_new(int ends[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof at;
  const int yes = 1;
  int server = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(server, (struct sockaddr *)&at, size) || listen(server, 1)) return 0;
  if (getsockname(server, (struct sockaddr *)&at, &size)) return 0;
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(ends[0], (struct sockaddr *)&at, sizeof at)) return 0;
  ends[1] = at.sin_port & 1 ? accept(server, NULL, NULL) : accept4(server, NULL, NULL, SOCK_CLOEXEC);
  close(server);
  setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return ends[1] >= 0;
}

static void pair_close(const int ends[2]) {
  close(ends[0]);
  close(ends[1]);
}

/* The open row of a descriptor's connection, NULL if it has none. */
static wr_connection *row_of(wr_ring *ring, int fd) {
  for (int i = 0; i < WR_CONNECTIONS; i++) {
    wr_connection *c = &ring->connection[i];
    if (c->state == WR_CONNECTION_OPEN && c->local_port == port_of(fd, 0) && c->remote_port == port_of(fd, 1)) return c;
  }
  return NULL;
}

static uint64_t in_frame(const wr_ring *ring, int received) {
  uint64_t messages = 0;
  for (int b = 0; b < WR_FRAME_BLOCKS; b++)
    for (int c = 0; c < WR_FRAME_CHANNELS; c++) {
      const wr_channel *channel = &ring->frame.block[b].channel[c];
      messages += received ? channel->recv_count : channel->send_count;
    }
  return messages;
}

static int readable(int fd) {
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  return poll(&waiting, 1, 60000) == 1;
}

TEST(socket_every_call_counts_its_message) {
  int ends[2];
  char buffer[64] = "0123456789";
  wr_ring *ring = ring_attached();
  REQUIRE(pair_new(ends));
  struct iovec parts[2] = {{buffer, 3}, {buffer + 3, 4}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  const ssize_t sizes[] = {send(ends[0], buffer, 1, 0),     sendto(ends[0], buffer, 2, 0, NULL, 0), sendmsg(ends[0], &message, 0),
                           write(ends[0], buffer, 8),       writev(ends[0], parts, 2),              send(ends[0], buffer, 5, 0),
                           send(ends[0], buffer, 6, 0),     send(ends[0], buffer, 9, 0)};
  const ssize_t expected[] = {1, 2, 7, 8, 7, 5, 6, 9};
  CHECK(!memcmp(sizes, expected, sizeof sizes));
  const ssize_t taken[] = {recv(ends[1], buffer, 1, MSG_WAITALL), recvfrom(ends[1], buffer, 2, MSG_WAITALL, NULL, NULL),
                           recvmsg(ends[1], &message, MSG_WAITALL)};
  CHECK(taken[0] == 1 && taken[1] == 2 && taken[2] == 7);
  usleep(20000); /* so that each of the rest is one call */
  CHECK(read(ends[1], buffer, 8) == 8 && readv(ends[1], parts, 2) == 7 && __read_chk(ends[1], buffer, 5, sizeof buffer) == 5);
  CHECK(__recv_chk(ends[1], buffer, 6, sizeof buffer, MSG_WAITALL) == 6);
  CHECK(__recvfrom_chk(ends[1], buffer, 9, sizeof buffer, MSG_WAITALL, NULL, NULL) == 9);
  wr_connection *from = row_of(ring, ends[0]), *to = row_of(ring, ends[1]);
  REQUIRE(from && to);
  CHECK(from->messages_sent == 8 && from->bytes_sent == 45 && !from->messages_received && from->fd == ends[0]);
  CHECK(to->messages_received == 8 && to->bytes_received == 45 && !to->messages_sent && to->fd == ends[1]);
  CHECK(from->last_send_ns && !from->last_receive_ns && to->last_receive_ns);
  static const uint8_t loopback[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
  CHECK(!memcmp(from->local_addr, loopback, 16) && !memcmp(from->remote_addr, loopback, 16));
  CHECK(in_frame(ring, 0) == 8 && in_frame(ring, 1) == 8);
  CHECK(ring->frame.mode == 1 && ring->header.sensor[WR_SENSOR_SOCKET].state == WR_SENSOR_ON);
  pair_close(ends);
  wr_socket_attach(NULL);
}

TEST(socket_only_bytes_taken_from_tcp_count) {
  int ends[2], local[2], tube[2];
  char buffer[8] = "abc";
  wr_ring *ring = ring_attached();
  REQUIRE(pair_new(ends) && !socketpair(AF_UNIX, SOCK_STREAM, 0, local) && !pipe(tube));
  CHECK(send(ends[0], buffer, 3, 0) == 3 && readable(ends[1]));
  CHECK_EQUAL(recv(ends[1], buffer, 2, MSG_PEEK), 2);
  CHECK_EQUAL(recv(ends[1], buffer, 3, MSG_WAITALL), 3);
  errno = 0;
  CHECK(recv(ends[1], buffer, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(send(local[0], buffer, 1, 0) == 1 && recv(local[1], buffer, 1, 0) == 1);
  CHECK(write(tube[1], buffer, 1) == 1 && read(tube[0], buffer, 1) == 1);
  CHECK(read(-1, buffer, 1) == -1 && errno == EBADF);
  CHECK(close(70000) == -1 && errno == EBADF);
  CHECK(in_frame(ring, 0) == 1 && in_frame(ring, 1) == 1 && row_of(ring, ends[1])->messages_received == 1);
  CHECK(send(ends[0], buffer, 3, 0) == 3);
  errno = 77; /* of the program: counting must not change it */
  CHECK(recv(ends[1], buffer, 3, MSG_WAITALL) == 3 && errno == 77);
  pair_close(ends);
  pair_close(local);
  pair_close(tube);
  wr_socket_attach(NULL);
}

TEST(socket_descriptor_that_changes_its_meaning_is_asked_about_anew) {
  int ends[2], others[2], tube[2];
  char byte = 'x';
  wr_ring *ring = ring_attached();
  REQUIRE(pair_new(ends) && pair_new(others) && !pipe(tube));
  for (int i = 0; i < 2; i++) CHECK(send(ends[i], &byte, 1, 0) == 1 && send(others[i], &byte, 1, 0) == 1);
  wr_connection *first = row_of(ring, ends[0]), *last = row_of(ring, others[1]);
  REQUIRE(first && last);
  int copy = dup(others[0]);
  CHECK(send(copy, &byte, 1, 0) == 1 && row_of(ring, copy)->messages_sent == 2); /* two descriptors, one connection */
  CHECK(dup2(tube[1], ends[0]) == ends[0] && first->state == WR_CONNECTION_CLOSED);
  CHECK(dup3(tube[1], others[1], O_CLOEXEC) == others[1] && last->state == WR_CONNECTION_CLOSED);
  CHECK(dup2(ends[1], ends[1]) == ends[1] && dup3(ends[1], ends[1], 0) == -1);
  uint64_t before = in_frame(ring, 0);
  CHECK(write(ends[0], &byte, 1) == 1 && write(others[1], &byte, 1) == 1);
  CHECK_EQUAL(in_frame(ring, 0), before); /* pipes now */
  CHECK(first->messages_sent == 1 && first->state == WR_CONNECTION_CLOSED);
  close(copy);
  pair_close(ends);
  pair_close(others);
  pair_close(tube);
  wr_socket_attach(NULL);
}

TEST(socket_close_that_never_came_by_is_noticed) {
  int ends[2], tube[2];
  char byte = 'x';
  wr_ring *ring = ring_attached();
  REQUIRE(pair_new(ends) && !pipe(tube));
  CHECK(send(ends[0], &byte, 1, 0) == 1);
  wr_connection *row = row_of(ring, ends[0]);
  REQUIRE(row);
  REQUIRE(syscall(SYS_dup3, tube[1], ends[0], 0) == ends[0]); /* as libuv does, past us */
  usleep(150000);                                         /* longer than a row is trusted without a look */
  CHECK(write(ends[0], &byte, 1) == 1);
  CHECK(row->state == WR_CONNECTION_CLOSED && row->messages_sent == 1 && in_frame(ring, 0) == 1);
  pair_close(ends);
  pair_close(tube);
  wr_socket_attach(NULL);
}

TEST(socket_store_is_in_the_table_but_not_in_the_frame) {
  int ends[2];
  char byte = 'x';
  wr_ring *ring = ring_attached();
  REQUIRE(pair_new(ends));
  wr_socket_store_port(-1);
  wr_socket_store_port(port_of(ends[0], 1));
  CHECK(send(ends[0], &byte, 1, 0) == 1 && recv(ends[1], &byte, 1, 0) == 1);
  CHECK(row_of(ring, ends[0])->messages_sent == 1 && row_of(ring, ends[1])->messages_received == 1);
  CHECK(!in_frame(ring, 0) && !in_frame(ring, 1));
  pair_close(ends);
  wr_socket_attach(NULL);
}

static wr_ring *parents;
static int parents_ends[2];

static int be_child(void) {
  char byte = 'x';
  uint64_t before = parents->connection[0].version, messages = in_frame(parents, 0);
  if (send(parents_ends[0], &byte, 1, 0) != 1 || in_frame(parents, 0) != messages) return 1;
  pair_close(parents_ends);
  if (parents->connection[0].version != before || parents->connection[0].state != WR_CONNECTION_OPEN) return 2;
  int ends[2];
  wr_ring *own = ring_attached(); /* it may become a rank of its own */
  if (!pair_new(ends) || send(ends[0], &byte, 1, 0) != 1) return 3;
  wr_connection *row = row_of(own, ends[0]);
  return row && row->messages_sent == 1 && in_frame(own, 0) == 1 ? 0 : 4;
}

TEST(socket_forked_child_leaves_the_ring_alone) {
  char byte = 'x';
  parents = ring_attached();
  REQUIRE(pair_new(parents_ends));
  CHECK(send(parents_ends[0], &byte, 1, 0) == 1);
  REQUIRE(row_of(parents, parents_ends[0]));
  CHECK_EQUAL(in_child(be_child), 0);
  CHECK(send(parents_ends[0], &byte, 1, 0) == 1 && row_of(parents, parents_ends[0])->messages_sent == 2);
  pair_close(parents_ends);
  wr_socket_attach(NULL);
}

TEST(socket_more_connections_than_rows_are_counted) {
  enum { PAIRS = WR_CONNECTIONS / 2 + 10 };
  static int ends[PAIRS][2];
  char byte = 'x';
  wr_ring *ring = ring_attached();
  for (int i = 0; i < PAIRS; i++) {
    REQUIRE(pair_new(ends[i]));
    CHECK(send(ends[i][0], &byte, 1, 0) == 1 && recv(ends[i][1], &byte, 1, 0) == 1);
  }
  CHECK_EQUAL(ring->header.dropped_connections, 2 * PAIRS - WR_CONNECTIONS);
  CHECK(in_frame(ring, 0) == PAIRS && in_frame(ring, 1) == PAIRS); /* all the same */
  for (int i = 0; i < PAIRS; i++) pair_close(ends[i]);
  wr_socket_attach(NULL);
}

/* Threads that move bytes, and open and close, while the table turns from our own to the ring's. */
enum { THREADS = 4, MESSAGES = 2000, LIVES = 20 };
static int lanes[THREADS][2];
static uint32_t started;

static void *talk(void *number) {
  int *lane = lanes[(uintptr_t)number];
  char byte = 'x';
  for (int i = 0; i < MESSAGES; i++) {
    CHECK(send(lane[0], &byte, 1, 0) == 1 && recv(lane[1], &byte, 1, 0) == 1);
    if (i == MESSAGES / 10) ADD(&started, 1);
  }
  return NULL;
}

static void *open_and_close(void *unused) {
  char byte = 'x';
  for (int i = 0; i < LIVES; i++) {
    int ends[2];
    if (!pair_new(ends)) {
      test_fail(__FILE__, __LINE__, "a connection");
      continue;
    }
    CHECK(send(ends[0], &byte, 1, 0) == 1 && recv(ends[1], &byte, 1, 0) == 1);
    pair_close(ends);
  }
  return unused;
}

TEST(socket_threads_go_on_while_the_ring_comes) {
  pthread_t thread[THREADS + 1];
  wr_ring *ring = ring_new();
  wr_op op = op_new(comm_new(ring, 8), WR_ALL_REDUCE, -1);
  wr_op_begin(ring, &op);
  STORE(&started, 0u);
  for (int i = 0; i < THREADS; i++) REQUIRE(pair_new(lanes[i]));
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, talk, (void *)i);
  while (LOAD(&started) < THREADS) usleep(100);
  pthread_create(&thread[THREADS], NULL, open_and_close, NULL);
  wr_socket_attach(ring);
  wr_socket_attach(ring); /* twice is once */
  for (int i = 0; i <= THREADS; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    wr_connection *from = row_of(ring, lanes[i][0]), *to = row_of(ring, lanes[i][1]);
    REQUIRE(from && to);
    /* Whoever was counting when the table turned may be too late: one message, sent or received, of each thread. */
    uint64_t counted = from->messages_sent + to->messages_received;
    CHECK(counted == 2 * MESSAGES || counted == 2 * MESSAGES - 1);
    pair_close(lanes[i]);
  }
  wr_socket_attach(NULL);
}
