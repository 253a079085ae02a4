/* Turns the kernel into one without the system calls of later ones: `old_kernel LAST PROGRAM ARGUMENT ...`, where LAST is the number of
 * its last call. Numbers only grow, so each one after it is answered as a kernel answers what it does not know; but for ARM's own, which
 * have numbers of their own. */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "filter.h"

#define LOAD_NUMBER {0x20, 0, 0, 0}
/* Goes so many instructions further if it is, or is not. */
#define IF_GREATER(number, if_so, if_not) {0x25, if_so, if_not, number}
#define ANSWER(what) {0x06, 0, 0, what}
#define FILTER 2
#define REFUSE 0x00050000
#define ALLOW 0x7fff0000
#define ARMS_OWN 0x000f0000

int main(int count, char **arguments) {
    if (count < 3)
        return 64;
    struct instruction filter[] = {
        LOAD_NUMBER,
        IF_GREATER(atol(arguments[1]), 0, 2),
        IF_GREATER(ARMS_OWN, 1, 0),
        ANSWER(REFUSE | ENOSYS),
        ANSWER(ALLOW),
    };
    struct program program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, FILTER, &program))
        return 77;
    execvp(arguments[2], arguments + 2);
    return 69;
}
