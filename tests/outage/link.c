/* Turns two network namespaces into ends of one link with a delay, and with a box in its middle that forgets connections.
 *
 *   link PID NEAR FAR DELAY_MS FORGETS_AFTER_S
 *
 * NEAR is a TUN device in the namespace of whoever starts this, FAR one in that of process PID. What enters one end leaves the
 * other so many milliseconds later, each way. With FORGETS_AFTER_S above 0 a TCP connection on which neither side said anything
 * for so long is forgotten, as NAT and firewalls do it that drop what they do not know: whatever comes for it later vanishes, and
 * nobody is told. A SYN from FAR makes a connection known. Says "ready" once both devices are there; their addresses, MTU and state
 * are for others to set. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, QUEUED = 1024, FLOWS = 256, TCP = 6, SYN = 0x02, ACK = 0x10 };

struct packet { int64_t due_ns; int length; uint8_t bytes[MTU]; };
struct queue { struct packet packets[QUEUED]; unsigned head, count; };
/* Four bytes of the board's address, in which those of a test differ, and both ports. */
struct flow { uint8_t key[8]; int64_t heard_ns; };

static struct queue queues[2];
static struct flow flows[FLOWS];
static int64_t delay_ns, forgets_ns;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void need(int ok, const char *what) {
    if (!ok) { perror(what); exit(1); }
}

static int tun(const char *name) {
    struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    need(device >= 0, "/dev/net/tun");
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    need(ioctl(device, TUNSETIFF, &request) == 0, name);
    return device;
}

/* Whether the box in the middle lets it through. */
static int passes(const uint8_t *packet, int length, int is_from_far) {
    int six = packet[0] >> 4 == 6;
    int header = six ? 40 : (packet[0] & 15) * 4;
    if (forgets_ns == 0 || packet[six ? 6 : 9] != TCP || length < header + 20) return 1;
    const uint8_t *source = packet + (six ? 20 : 12), *destination = packet + (six ? 36 : 16), *ports = packet + header;
    uint8_t key[8];
    memcpy(key, is_from_far ? source : destination, 4);
    memcpy(key + 4, is_from_far ? ports : ports + 2, 2);
    memcpy(key + 6, is_from_far ? ports + 2 : ports, 2);
    int64_t now = now_ns();
    struct flow *known = NULL, *oldest = flows;
    for (struct flow *flow = flows; flow < flows + FLOWS; flow++) {
        if (flow->heard_ns != 0 && memcmp(flow->key, key, sizeof key) == 0) known = flow;
        if (flow->heard_ns < oldest->heard_ns) oldest = flow;
    }
    if (is_from_far && (packet[header + 13] & (SYN | ACK)) == SYN) {
        if (known == NULL) known = oldest;
        memcpy(known->key, key, sizeof key);
    } else if (known == NULL || now - known->heard_ns > forgets_ns) {
        if (known != NULL) known->heard_ns = 0;
        return 0;
    }
    known->heard_ns = now;
    return 1;
}

static void take(int device, struct queue *queue, int is_from_far) {
    while (queue->count < QUEUED) {
        struct packet *packet = &queue->packets[(queue->head + queue->count) % QUEUED];
        packet->length = read(device, packet->bytes, MTU);
        if (packet->length < 20) return;
        if (!passes(packet->bytes, packet->length, is_from_far)) continue;
        packet->due_ns = now_ns() + delay_ns;
        queue->count++;
    }
}

static void give(int device, struct queue *queue) {
    while (queue->count > 0 && queue->packets[queue->head].due_ns <= now_ns()) {
        struct packet *packet = &queue->packets[queue->head];
        /* A device that is down takes nothing: what was on its way is lost. */
        if (write(device, packet->bytes, packet->length) < 0) {}
        queue->head = (queue->head + 1) % QUEUED;
        queue->count--;
    }
}

int main(int count, char **words) {
    need(count == 6, "link PID NEAR FAR DELAY_MS FORGETS_AFTER_S");
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/net", words[1]);
    delay_ns = atoll(words[4]) * 1000000;
    forgets_ns = atoll(words[5]) * 1000000000;
    int ends[2] = { tun(words[2]), -1 };
    int there = open(path, O_RDONLY);
    need(there >= 0, path);
    need(setns(there, CLONE_NEWNET) == 0, path);
    ends[1] = tun(words[3]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int64_t next = INT64_MAX, now = now_ns();
        for (int end = 0; end < 2; end++)
            if (queues[end].count > 0 && queues[end].packets[queues[end].head].due_ns < next)
                next = queues[end].packets[queues[end].head].due_ns;
        struct timespec wait = { 0, 0 };
        if (next > now) { wait.tv_sec = (next - now) / 1000000000; wait.tv_nsec = (next - now) % 1000000000; }
        struct pollfd both[2] = { { ends[0], POLLIN, 0 }, { ends[1], POLLIN, 0 } };
        ppoll(both, 2, next == INT64_MAX ? NULL : &wait, NULL);
        for (int end = 0; end < 2; end++) {
            take(ends[end], &queues[end], end);
            give(ends[!end], &queues[end]);
        }
    }
}
