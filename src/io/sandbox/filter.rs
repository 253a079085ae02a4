//! Turns the system calls that an agent never makes into a program that the kernel asks before each (seccomp(2)).

use nix::errno::Errno;
use nix::libc::{
    self, BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter,
};

use super::super::file::cause;
use super::super::kernel;

/// How the kernel calls this processor (linux/audit.h): its number in ELF, 64 bits, little endian.
#[cfg(target_arch = "x86_64")]
const PROCESSOR: Option<u32> = Some(0xC000_003E);
#[cfg(target_arch = "aarch64")]
const PROCESSOR: Option<u32> = Some(0xC000_00B7);
#[cfg(target_arch = "riscv64")]
const PROCESSOR: Option<u32> = Some(0xC000_00F3);
#[cfg(target_arch = "arm")]
const PROCESSOR: Option<u32> = Some(0x4000_0028);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64", target_arch = "arm")))]
const PROCESSOR: Option<u32> = None;

/// On x86-64 calls of the x32 ABI have other numbers.
const FIRST_OF_X32: u32 = 0x4000_0000;

/// To run programs; to look into or change other processes; to mount; to enter or make namespaces; to load code into the
/// kernel; keys; files by handle, past every path; io_uring, which passes filters; to set clocks and names of the machine.
const REFUSED: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    // clock_settime64, which libc does not name: what musl calls first where a long is too short for the time.
    #[cfg(target_pointer_width = "32")]
    404,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_personality,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    libc::SYS_fanotify_init,
];

/// Flags of clone(2) that make a namespace: in one of its own a process has every capability, and talks to parts of the
/// kernel that are otherwise for root.
const NAMESPACES: u32 = 0x7E02_0000;

/// Sockets that an agent and the resolver of its libc have.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Puts the filter before every system call of this process.
pub fn enter() -> Result<String, String> {
    let Some(processor) = PROCESSOR else {
        return Err("there is no list of system calls for this processor, so none is refused".to_owned());
    };
    let refused = |errno: Errno| {
        let why = cause(&errno.into());
        format!("the kernel takes no filter (seccomp), so no system call is refused: {why}")
    };
    kernel::filter_system_calls(&mut program(processor)).map_err(refused)?;
    Ok(format!("seccomp: {} system calls and unusual sockets are refused", REFUSED.len()))
}

/// `struct seccomp_data`: number, processor, instruction pointer, then six arguments of 64 bits, little endian.
fn program(processor: u32) -> Vec<sock_filter> {
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const FIRST_ARGUMENT: u32 = 16;
    let refuse = |errno: Errno| answer(libc::SECCOMP_RET_ERRNO | errno as u32);
    // Numbers of another processor mean something else: refused, whatever they are.
    let mut program = vec![load(ARCHITECTURE), compare(BPF_JEQ, processor, 1, 0), refuse(Errno::EPERM), load(NUMBER)];
    if cfg!(target_arch = "x86_64") {
        program.extend([compare(BPF_JGE, FIRST_OF_X32, 0, 1), refuse(Errno::EPERM)]);
    }
    let number = |call: c_long| u32::try_from(call).unwrap_or(u32::MAX);
    for call in REFUSED {
        program.extend([compare(BPF_JEQ, number(*call), 0, 1), refuse(Errno::EPERM)]);
    }
    // Its flags stand in memory, where no filter sees them. Every libc takes clone where a kernel does not have it.
    program.extend([compare(BPF_JEQ, number(libc::SYS_clone3), 0, 1), refuse(Errno::ENOSYS)]);
    let allow = answer(libc::SECCOMP_RET_ALLOW);
    program.extend([compare(BPF_JEQ, number(libc::SYS_clone), 0, 4), load(FIRST_ARGUMENT)]);
    program.extend([compare(BPF_JSET, NAMESPACES, 0, 1), refuse(Errno::EPERM), allow]);
    // The last question: past it nothing is loaded any more.
    let sockets = u8::try_from(FAMILIES.len() * 2 + 2).unwrap_or(u8::MAX);
    program.extend([compare(BPF_JEQ, number(libc::SYS_socket), 0, sockets), load(FIRST_ARGUMENT)]);
    for family in FAMILIES {
        program.extend([compare(BPF_JEQ, family.unsigned_abs(), 0, 1), allow]);
    }
    program.extend([refuse(Errno::EAFNOSUPPORT), allow]);
    program
}

fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

/// Goes on behind so many instructions, if it is so, or else behind so many.
fn compare(comparison: u32, with: u32, so: u8, otherwise: u8) -> sock_filter {
    instruction(BPF_JMP | comparison | BPF_K, with, so, otherwise)
}

fn answer(with: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, with, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or_default(), jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer, by seccomp(2) and the rules of classic BPF.
    fn verdict(processor: u32, number: c_long, first_argument: u32) -> Result<(), Errno> {
        let data = [u32::try_from(number).unwrap(), processor, 0, 0, first_argument, u32::MAX];
        let (program, mut loaded, mut next) = (program(PROCESSOR.unwrap()), 0, 0);
        loop {
            let one = program[next];
            next += 1;
            let jump = |is_so: bool| usize::from(if is_so { one.jt } else { one.jf });
            match u32::from(one.code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => loaded = data[usize::try_from(one.k).unwrap() / 4],
                code if code == BPF_JMP | BPF_JEQ | BPF_K => next += jump(loaded == one.k),
                code if code == BPF_JMP | BPF_JGE | BPF_K => next += jump(loaded >= one.k),
                code if code == BPF_JMP | BPF_JSET | BPF_K => next += jump(loaded & one.k != 0),
                code if code == BPF_RET | BPF_K && one.k == libc::SECCOMP_RET_ALLOW => return Ok(()),
                code if code == BPF_RET | BPF_K => {
                    assert_eq!(one.k & libc::SECCOMP_RET_ACTION_FULL, libc::SECCOMP_RET_ERRNO);
                    return Err(Errno::from_raw((one.k & libc::SECCOMP_RET_DATA).cast_signed()));
                }
                code => panic!("no instruction of seccomp: {code:#x}"),
            }
        }
    }

    #[test]
    fn threads_are_made_and_namespaces_are_not() {
        let clone = |flags: i32| verdict(PROCESSOR.unwrap(), libc::SYS_clone, flags.cast_unsigned());
        // What musl and glibc make a thread with, and a process.
        assert_eq!(clone(0x7D_0F00), Ok(()));
        assert_eq!(clone(0x3D_0F00), Ok(()));
        assert_eq!(clone(libc::SIGCHLD), Ok(()));
        for namespace in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
        ] {
            assert_eq!(clone(libc::SIGCHLD | namespace), Err(Errno::EPERM), "{namespace:#x}");
        }
        assert_eq!(verdict(PROCESSOR.unwrap(), libc::SYS_clone3, 0), Err(Errno::ENOSYS));
    }

    #[test]
    fn every_call_listed_is_refused_and_every_other_is_not() {
        let here = PROCESSOR.unwrap();
        for number in 0..1024 {
            let expected = match number {
                libc::SYS_clone3 => Err(Errno::ENOSYS),
                libc::SYS_socket => Err(Errno::EAFNOSUPPORT),
                number if REFUSED.contains(&number) => Err(Errno::EPERM),
                _ => Ok(()),
            };
            assert_eq!(verdict(here, number, 17), expected, "{number}");
            assert_eq!(verdict(here ^ 1, number, 17), Err(Errno::EPERM), "{number} of another processor");
        }
        for family in FAMILIES {
            assert_eq!(verdict(here, libc::SYS_socket, family.cast_unsigned()), Ok(()));
        }
    }
}
