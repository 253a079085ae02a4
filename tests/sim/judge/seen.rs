//! Turns what others write on a watched Node into the moment by which the agent has looked at it (D4).

use super::super::wanted::{SECOND_US, Wanted};

/// The request that is under way then may take as long as any, and the board has to be looked at.
const ASKED_WITHIN_US: u64 = 10 * SECOND_US + 5 * SECOND_US;

/// What others wrote, and nobody has asked about since.
#[derive(Debug, Default)]
pub struct Others {
    since_us: Option<u64>,
}

impl Others {
    pub fn wrote(&mut self, now_us: u64) {
        self.since_us.get_or_insert(now_us);
    }

    /// The Node is asked for, or written; or nothing is watched any more.
    pub fn asked(&mut self) {
        self.since_us = None;
    }

    /// Nobody can be told just now.
    pub fn wait(&mut self, now_us: u64) {
        self.since_us = self.since_us.map(|_| now_us);
    }

    /// One look at the Node comes with each look at the board.
    pub fn are_heard(&self, wanted: &Wanted, now_us: u64) -> Result<(), String> {
        let within_us = ASKED_WITHIN_US + wanted.update_us;
        match self.since_us {
            Some(since_us) if now_us > since_us + within_us => {
                let spent_s = (now_us - since_us) / SECOND_US;
                Err(format!("others wrote the Node, which is watched, and nobody looks at it for {spent_s} s"))
            }
            _ => Ok(()),
        }
    }
}
