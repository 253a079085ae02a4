/* The program of a filter of system calls (linux/filter.h, linux/seccomp.h), which not every C library brings. */
struct instruction {
    unsigned short code;
    unsigned char jt, jf;
    unsigned int k;
};
struct program {
    unsigned short length;
    struct instruction *filter;
};
