/* Life of a ring: what is in a new one, what happens where there can be none, forks, heartbeat, notes. */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atomics.h"
#include "check.h"

static const wr_identity someone = {0, 0, 1, 1, 0, "h", "j"};

TEST(ring_layout_is_as_published) {
  const char *json = wr_layout_json();
  CHECK(strstr(json, "\"sizeof.wr_frame\":1184"));
  CHECK(strstr(json, "\"sizeof.wr_record\":64"));
  CHECK(json[strlen(json) - 1] == '}');
  CHECK(offsetof(wr_ring, record) % 8 == 0 && offsetof(wr_ring, inflight) % 8 == 0); /* words are whole */
  CHECK(!(WR_RECORDS & (WR_RECORDS - 1)));
  CHECK(offsetof(wr_ring, frame_peer) == offsetof(wr_ring, frame) + 1184);
}

TEST(ring_new_has_identity_and_is_private) {
  int fd;
  wr_ring *ring = ring_new_at(&fd);
  struct stat file;
  REQUIRE(!fstat(fd, &file));
  CHECK_EQUAL(file.st_size, sizeof(wr_ring));
  CHECK_EQUAL(file.st_mode & 0777, 0600);
  CHECK((size_t)file.st_blocks * 512 >= sizeof(wr_ring)); /* allocated: no SIGBUS later */
  CHECK(ring->header.magic == WR_MAGIC && ring->header.version == WR_VERSION);
  CHECK_EQUAL(ring->header.pid, getpid());
  CHECK(ring->header.pid_start_ticks > 0);
  CHECK_EQUAL(ring->header.rank, 3);
  CHECK(!strcmp(ring->header.host, "host-a") && !strcmp(ring->header.job, "job-a"));
  CHECK(wr_process_ring() == ring);
  close(fd);
}

TEST(ring_existing_file_is_not_taken) {
  char path[64];
  snprintf(path, sizeof path, "/dev/shm/whichrank-test.%d.taken", (int)getpid());
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  CHECK(write(fd, "mine", 4) == 4);
  close(fd);
  CHECK(!wr_ring_create(path, &someone) && errno == EEXIST);
  struct stat file;
  CHECK(!stat(path, &file) && file.st_size == 4);
  unlink(path);
}

static int files_in(const char *dir) {
  DIR *d = opendir(dir);
  int n = -2;
  while (d && readdir(d)) n++;
  if (d) closedir(d);
  return n;
}

/* In a mount namespace of its own, so that nothing is left on the machine. 0 good, 50 cannot mount, else what failed. */
static int create_on_tmpfs(const char *options, unsigned long flags, int expected) {
  char dir[] = "/tmp/whichrank-mount-XXXXXX", path[64];
  if (!mkdtemp(dir)) return 51;
  if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      mount("tmpfs", dir, "tmpfs", 0, options) || (flags && mount(NULL, dir, NULL, MS_REMOUNT | flags, NULL))) {
    rmdir(dir);
    return 50;
  }
  snprintf(path, sizeof path, "%s/a.ring", dir);
  int bad = 0;
  if (wr_ring_create(path, &someone)) bad = 1;
  else if (errno != expected) bad = 2;
  else if (files_in(dir)) bad = 3;
  else if (wr_process_ring()) bad = 4;
  umount(dir);
  rmdir(dir);
  return bad;
}

static int on_full(void) { return create_on_tmpfs("size=256k", 0, ENOSPC); }
static int on_read_only(void) { return create_on_tmpfs("size=4m", MS_RDONLY, EROFS); }

TEST(ring_full_tmpfs_fails_and_leaves_nothing) {
  int status = in_child(on_full);
  if (status == 50) SKIP("needs the right to mount (run as root)");
  CHECK_EQUAL(status, 0);
}

TEST(ring_read_only_tmpfs_fails_and_leaves_nothing) {
  int status = in_child(on_read_only);
  if (status == 50) SKIP("needs the right to mount (run as root)");
  CHECK_EQUAL(status, 0);
}

static int over_limit(void) {
  char path[64];
  struct rlimit small = {65536, 65536};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  snprintf(path, sizeof path, "/dev/shm/whichrank-test.%d.limit", (int)getpid());
  if (wr_ring_create(path, &someone)) return 1;
  if (errno != EFBIG) return 2;
  return access(path, F_OK) == 0 ? 3 : 0;
}

TEST(ring_over_the_file_size_limit_fails_and_leaves_nothing) { CHECK_EQUAL(in_child(over_limit), 0); }

TEST(ring_folder_missing_fails) {
  CHECK(!wr_ring_create("/dev/shm/whichrank-no-such-folder/a.ring", &someone) && errno == ENOENT);
}

static wr_ring *parents;

/* All but the heartbeat, which goes on. */
static void copy_ring(wr_ring *to, const wr_ring *from) {
  wr_word *target = (wr_word *)(void *)to;
  const wr_word *source = (const wr_word *)(const void *)from;
  for (size_t i = 0; i < sizeof *to / 8; i++) target[i] = LOAD(&source[i]);
  to->header.heartbeat_ns = 0;
}

static int child_of_rank(void) {
  if (wr_process_ring()) return 1;
  /* It may become a rank of its own: with its own thread id, and generations from the start. */
  wr_ring *own = ring_new();
  if (!own || own == parents || wr_process_ring() != own) return 2;
  int slot = comm_new(own, 4);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(own, &op);
  if (op.tid != (uint32_t)gettid()) return 3;
  if (own->comm[slot].generation != 1) return 4;
  wr_op_end(own, &op, WR_DONE);
  return 0;
}

TEST(ring_forked_child_never_writes_the_parents) {
  parents = ring_new();
  int slot = comm_new(parents, 4);
  wr_op op = op_new(slot, WR_ALL_REDUCE, -1);
  wr_op_begin(parents, &op);
  wr_heartbeat_start(parents, NULL);
  usleep(20000); /* the first beat is over, the next one 80 ms away */
  static wr_ring before;
  copy_ring(&before, parents);
  CHECK_EQUAL(in_child(child_of_rank), 0);
  wr_ring_disable();
  usleep(120000);
  static wr_ring after;
  copy_ring(&after, parents);
  CHECK(!memcmp(&before, &after, sizeof before));
}

static uint32_t beats;
static void beaten(void) { ADD(&beats, 1); }

TEST(ring_heartbeat_beats_and_stops) {
  wr_ring *ring = ring_new();
  STORE(&beats, 0);
  uint64_t start = wr_now_ns();
  CHECK_EQUAL(wr_heartbeat_start(ring, beaten), 0);
  CHECK_EQUAL(wr_heartbeat_start(ring, beaten), 0); /* once is enough */
  usleep(450000);
  CHECK(LOAD(&beats) >= 3 && LOAD(&beats) <= 6);
  CHECK(LOAD(&ring->header.heartbeat_ns) > start + 200 * 1000000);
  wr_ring_disable();
  CHECK(!wr_process_ring());
  usleep(150000);
  uint32_t after = LOAD(&beats);
  usleep(250000);
  CHECK_EQUAL(LOAD(&beats), after);
}

TEST(ring_first_note_stands) {
  wr_ring *ring = ring_new();
  wr_note_exception(ring, "ValueError: first");
  uint64_t at = ring->header.exception_ns;
  wr_note_exception(ring, "RuntimeError: connection closed by peer");
  CHECK(at > 1 && ring->header.exception_ns == at);
  CHECK(!strcmp(ring->header.exception, "ValueError: first"));
  char endless[1000];
  memset(endless, 'x', sizeof endless - 1);
  endless[sizeof endless - 1] = 0;
  wr_note_failure(ring, endless);
  CHECK_EQUAL(strlen(ring->header.failure), sizeof ring->header.failure - 1);
  wr_phase_set(ring, "checkpoint");
  CHECK(ring->header.phase_since_ns && !strcmp(ring->header.phase, "checkpoint"));
  wr_phase_set(ring, NULL);
  CHECK(!ring->header.phase_since_ns && !*ring->header.phase);
  wr_sensor_set(ring, WR_SENSOR_C10D, WR_SENSOR_FAILED, "no compiler");
  wr_sensor_set(ring, WR_SENSORS, WR_SENSOR_ON, "out of range");
  CHECK(ring->header.sensor[WR_SENSOR_C10D].state == WR_SENSOR_FAILED);
  wr_ring_set_rank(ring, 5, 16);
  CHECK(ring->header.rank == 5 && ring->header.world_size == 16);
  CHECK(!ring->header.closed_ns);
  wr_ring_close();
  CHECK(ring->header.closed_ns);
}

TEST(a_ring_that_is_truncated_under_its_process_does_not_end_it) {
  char dir[] = "/dev/shm/whichrank-test-XXXXXX", path[64];
  REQUIRE(mkdtemp(dir) != NULL);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    wr_identity identity = {0, 0, 1, 1, 0, "host", "job"};
    wr_ring *ring = wr_open_process_ring(dir, &identity, NULL);
    snprintf(path, sizeof path, "%s/%d.ring", dir, (int)getpid());
    if (!ring || truncate(path, 4096)) _exit(2);
    wr_record record = {.counter = 1};
    for (int i = 0; i < 20000; i++) wr_push(ring, &record);
    child_exit(wr_process_ring() ? 3 : 0); /* writing was switched off, and nothing else happened */
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQUAL(status, 0);
  snprintf(path, sizeof path, "%s/%d.ring", dir, (int)child);
  unlink(path);
  rmdir(dir);
}
