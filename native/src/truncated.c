/* A ring that somebody cuts short under a living rank must not end the rank.
 *
 * A write behind the end of a mapped file raises SIGBUS. The handler here answers one case only, an address inside the
 * ring: it lays anonymous memory over the whole ring and returns, so the write is done again and goes nowhere; observation
 * of this process is over, training goes on. Any other SIGBUS is passed to whoever handled it before. (Sealing the file
 * against shrinking would be the better way, but only memfd files can be sealed, and those die with their process.)
 */
#define _GNU_SOURCE 1
#include "internal.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "atomics.h"
#include "whichrank/ring.h"

static struct sigaction before;
static uintptr_t guarded; /* start of the ring, 0 none */

static void on_bus_error(int number, siginfo_t *info, void *context) {
  uintptr_t start = LOAD_ACQUIRE(&guarded), at = (uintptr_t)info->si_addr;
  if (start && at >= start && at - start < sizeof(wr_ring)) {
    void *map = mmap((void *)start, sizeof(wr_ring), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (map != MAP_FAILED) {
      wr_ring_disable();
      return;
    }
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL); /* the faulting instruction runs again and ends the process as it would have */
  }
}

void wr_guard_mapping(const wr_ring *ring) {
  uintptr_t none = 0, start = (uintptr_t)ring;
  if (!__atomic_compare_exchange_n(&guarded, &none, start, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    STORE_RELEASE(&guarded, start); /* another ring, after a fork: the handler is there already */
    return;
  }
  struct sigaction ours;
  memset(&ours, 0, sizeof ours);
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, &before);
}
