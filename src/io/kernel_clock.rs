//! Turns the kernel's word about its own clock into yes or no: does somebody keep it right? The only `unsafe` of this
//! program: no kept library makes this call.
#![allow(unsafe_code, reason = "one call, argued where it stands")]

use std::mem::MaybeUninit;

use nix::libc;

/// Whether an NTP client says that it keeps the wall clock right (adjtimex(2), without `STA_UNSYNC`). The kernel itself
/// takes that back some hours after the last word of such a client. No, where the kernel refuses to say.
pub fn is_synchronised() -> bool {
    // Twice the room: whatever width of time a libc has, it writes no further than this.
    let mut answer = MaybeUninit::<[libc::timex; 2]>::zeroed();
    let timex = answer.as_mut_ptr().cast::<libc::timex>();
    // SAFETY: `timex` is numbers only, so zeroes are one, and `modes` of zero asks and sets nothing. The pointer is to
    // memory of ours, aligned and writable, that outlives the call; nobody else has it.
    let (state, status) = unsafe { (libc::adjtimex(timex), (*timex).status) };
    state >= 0 && status & libc::STA_UNSYNC == 0
}
