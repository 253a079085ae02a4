//! Turns what this process gives up, and what it asks of the kernel's clock and counters, into the calls that do it. Every
//! `unsafe` of the program stands here, because no kept library makes these calls for all boards: `seccompiler` knows neither
//! ARMv6 nor ARMv7, `landlock` would be larger than the program's whole sandbox, nix has neither adjtimex nor TCP_INFO
//! nor SO_RCVLOWAT, and hands over descriptors of a message as numbers that nobody owns.
#![allow(unsafe_code, reason = "each use is argued where it stands")]

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc::{self, sock_filter, sock_fprog};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use crate::config::limits::DBUS_DESCRIPTORS;

/// `struct landlock_path_beneath_attr` (linux/landlock.h).
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: RawFd,
}

/// `struct __user_cap_header_struct` (linux/capability.h).
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`; the kernel takes two, the lower 32 bits first.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct CapabilityWords {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// The version of Landlock that this kernel has; the error says that it has none, or that it was not switched on.
pub fn landlock_version() -> Result<u32, Errno> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel takes no attributes, and wants a null pointer and a length of zero.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u64>(), 0_usize, VERSION) };
    Errno::result(version).map(|version| u32::try_from(version).unwrap_or(0))
}

/// A set of rules for these kinds of access to files, bits of `LANDLOCK_ACCESS_FS_*`.
pub fn landlock_rules(handled: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: the first version of the structure is this one number, of this length; the kernel only reads it.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0_u32) };
    let descriptor = RawFd::try_from(Errno::result(made)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// One more rule: what is `allowed` at and below `parent`.
pub fn landlock_allow(rules: &OwnedFd, parent: impl AsFd, allowed: u64) -> Result<(), Errno> {
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { allowed, parent: parent.as_fd().as_raw_fd() };
    // SAFETY: the structure is the kernel's, both descriptors are open as long as this call; the kernel only reads.
    let added =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &raw const rule, 0_u32) };
    Errno::result(added).map(drop)
}

/// From here on this thread, and those it starts, may do what the rules say.
pub fn landlock_enter(rules: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: two numbers, no memory.
    Errno::result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) }).map(drop)
}

/// Gives up every capability but those whose bits are set. Answers what is left.
pub fn keep_capabilities(kept: u32) -> Result<u32, Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut words = [CapabilityWords::default(); 2];
    // SAFETY: both structures are the kernel's of this version, two of the second; they outlive the calls.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    let [CapabilityWords { permitted, .. }, _] = words;
    let left = permitted & kept;
    let fewer = [CapabilityWords { effective: left, permitted: left, inheritable: 0 }, CapabilityWords::default()];
    if words != fewer {
        // SAFETY: as above; the kernel only reads here.
        Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, fewer.as_ptr()) })?;
    }
    Ok(left)
}

/// From here on every system call of this process passes this program. It needs "no new privileges" before.
pub fn filter_system_calls(program: &mut [sock_filter]) -> Result<(), Errno> {
    /// Of threads that were started before, too.
    const ALL_THREADS: u32 = 1;
    let len = u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: length and pointer are those of one slice that outlives the call; the kernel copies and checks it.
    let taken =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, ALL_THREADS, &raw const program) };
    // With this flag a number above zero is a thread that could not be filtered.
    if Errno::result(taken)? > 0 { Err(Errno::ESRCH) } else { Ok(()) }
}

/// Whether an NTP client says that it keeps the wall clock right (adjtimex(2), without `STA_UNSYNC`), and how far off it is
/// then at most, in microseconds. The kernel itself takes that back some hours after the last word of such a client.
pub fn clock_discipline() -> Result<(bool, u64), Errno> {
    // Twice the room: whatever width of time a libc has, it writes no further than this.
    let mut answer = MaybeUninit::<[libc::timex; 2]>::zeroed();
    let timex = answer.as_mut_ptr().cast::<libc::timex>();
    // SAFETY: `timex` is numbers only, so zeroes are one, and `modes` of zero asks and sets nothing. The pointer is to
    // memory of ours, aligned and writable, that outlives the call; nobody else has it.
    let (state, status, error_us) = unsafe { (libc::adjtimex(timex), (*timex).status, (*timex).maxerror) };
    Errno::result(state)?;
    Ok((status & libc::STA_UNSYNC == 0, u64::try_from(error_us).unwrap_or(0)))
}

/// The beginning of `struct tcp_info` (linux/tcp.h), which only ever grew: this long since Linux 4.19.
pub type TcpInfo = [u8; 216];

/// What the kernel counts of a connection, and how many bytes of it this kernel knows.
pub fn tcp_info(socket: impl AsFd) -> Result<(TcpInfo, usize), Errno> {
    let mut info = [0; size_of::<TcpInfo>()];
    let mut length = libc::socklen_t::try_from(info.len()).unwrap_or(0);
    let (descriptor, place) = (socket.as_fd().as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the kernel writes no more than `length` bytes, all of which are ours and outlive the call, and into `length`;
    // any bytes are a value of an array of bytes. The descriptor is open as long as this call.
    let asked = unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length) };
    Errno::result(asked)?;
    Ok((info, usize::try_from(length).unwrap_or(0)))
}

/// From now on fewer bytes than these, unread, do not make the socket readable; its end does.
pub fn set_receive_low_water(socket: impl AsFd, bytes: usize) -> Result<(), Errno> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap_or(0);
    let (descriptor, place) = (socket.as_fd().as_raw_fd(), (&raw const bytes).cast());
    // SAFETY: the kernel reads one number of this length, which outlives the call. The descriptor is open as long as this call.
    let set = unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, libc::SO_RCVLOWAT, place, length) };
    Errno::result(set).map(drop)
}

/// Reads what has come at a unix socket, without waiting, and takes the descriptors that came along, in their order.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], descriptors: &mut VecDeque<OwnedFd>) -> Result<usize, Errno> {
    let mut space = nix::cmsg_space!([RawFd; DBUS_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_fd().as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these descriptors for us, each number once, and nobody else knows of them.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    Ok(message.bytes)
}

/// In the place of musl's own, whose way to the name of another thread's file brings all of C's `printf` along, ten
/// kilobytes. The standard library calls it for a thread that was given a name, and none of this program is.
#[cfg(target_env = "musl")]
// SAFETY: C's own signature; nothing but the standard library calls it, and what it answers is not looked at.
#[unsafe(no_mangle)]
extern "C" fn pthread_setname_np(_: libc::pthread_t, _: *const libc::c_char) -> libc::c_int {
    0
}
