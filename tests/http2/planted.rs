//! Turns frames that are changed on their way into what a faulty client would do, and that into proof that it is noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::another::{CONVERSATIONS, Side, converse};
use super::peer::{RST_STREAM, WINDOW_UPDATE, with_frames};

/// Faults that a conversation with a server of another author must bring out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// More of a window is given back than was taken.
    WindowGivenBackTwice,
    /// What was taken of the connection's window is never given back.
    WindowKept,
    /// A stream that has ended carries another request.
    StreamUsedAgain,
    /// Two requests get each other's answer.
    AnswerOfAnother,
    /// What is given up is never reset.
    ResetLost,
}

const ALL: [Planted; 5] = [
    Planted::WindowGivenBackTwice,
    Planted::WindowKept,
    Planted::StreamUsedAgain,
    Planted::AnswerOfAnother,
    Planted::ResetLost,
];

impl Planted {
    /// What arrives of what was sent. `last`: the last stream that the client has opened.
    fn on_the_wire(self, side: Side, bytes: &[u8], last: &mut u32) -> Vec<u8> {
        with_frames(bytes, |kind, stream, payload| {
            *last = if side == Side::Client { (*stream).max(*last) } else { *last };
            match (self, side, kind) {
                (Planted::WindowGivenBackTwice, Side::Client, WINDOW_UPDATE) => {
                    let increment = u32::from_be_bytes(payload[..].try_into().unwrap());
                    *payload = (2 * increment).to_be_bytes().to_vec();
                }
                (Planted::WindowKept, Side::Client, WINDOW_UPDATE) => return *stream != 0,
                (Planted::ResetLost, Side::Client, RST_STREAM) => return false,
                (Planted::StreamUsedAgain, Side::Client, _) if *stream == 5 => *stream = 1,
                (Planted::AnswerOfAnother, Side::Server, _) if [1, 3].contains(stream) && *last >= 3 => {
                    *stream = 4 - *stream;
                }
                _ => {}
            }
            true
        })
    }
}

#[test]
fn every_planted_fault_of_a_client_is_noticed() {
    for fault in ALL {
        let is_noticed = |seed: &u64| {
            let mut last = 0;
            let talk = || converse(*seed, false, |side, bytes| fault.on_the_wire(side, &bytes, &mut last));
            catch_unwind(AssertUnwindSafe(talk)).is_err()
        };
        let noticed = (0..CONVERSATIONS).filter(is_noticed).count();
        println!("{fault:?} in {noticed} of {CONVERSATIONS} conversations");
        assert!(noticed > 0, "{fault:?}");
    }
}
