//! Turns what a board is and has, which hardly ever changes, into looks at it that hold nothing else up.

use std::time::Duration;

use super::super::clock;
use super::super::thread::Source;
use super::Shared;
use crate::probe::{FeatureFiles, Features, Machine, Root};
use crate::time::Every;

/// How long the first facts wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// When its files are read again, on a thread: those of an owner may be on a file system that hangs.
pub(super) struct FeatureLooks {
    /// `None`: a thread has them that has not come back.
    files: Option<FeatureFiles>,
    looks: Every,
    whole_looks: Every,
    source: Source,
}

impl FeatureLooks {
    pub fn of(root: &Root, machine: &Machine) -> FeatureLooks {
        let (looks, whole_looks) = (Every::TEN_MINUTES, Every::HOUR);
        FeatureLooks {
            files: Some(FeatureFiles::new(root, machine)),
            looks,
            whole_looks,
            source: Source::new("feature-reader", 1),
        }
    }
}

impl Shared {
    /// Reads them where that is due, or settings were read. Answers whether they are others now.
    pub(super) async fn look_for_features(&self, looks: &mut FeatureLooks, machine: &mut Machine) -> bool {
        let now = clock::now();
        let is_asked = std::mem::take(&mut self.asked.borrow_mut().features_anew);
        let is_whole = looks.whole_looks.is_due(now.up) | is_asked;
        let found = if !self.asked.borrow().features {
            None
        } else if looks.looks.is_due(now.up) | is_whole {
            let mut files = looks.files.take().unwrap_or_else(|| FeatureFiles::new(&self.root, machine));
            let read = move || {
                let features = files.read(is_whole, now.wall);
                (files, features)
            };
            let read = self.reactor.before(clock::up() + PATIENCE, looks.source.ask(read)).await;
            let Some((files, features)) = read.and_then(Result::ok) else { return false };
            looks.files = Some(files);
            Some(features)
        } else {
            return false;
        };
        let is_other = found != machine.features;
        if is_other {
            let left_out = found.iter().flat_map(|features: &Features| &features.left_out);
            left_out.for_each(|absent| ::log::warn!(target: "no-label", "{absent}"));
            machine.features = found;
        }
        is_other
    }
}
