//! Turns what a board sends, keeps and finds again into what of it must not be: a secret for whoever was not verified, a
//! CA that nobody vouched for, a key used twice, a certificate lost.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::cluster::{MINUTE_US, SECOND_US};
use super::{der, supervisor};
use crate::model::http::Request;

/// Of one board: two lanes beat, one looks, and what is new is told.
const REQUESTS_PER_MINUTE: usize = 60;
/// In the first minute after Denied, Failed or a wrong certificate.
const REQUESTS_AFTER_REFUSAL: usize = 3;

/// Over what a request went.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Whoever answers is certified by a CA that the board goes by.
    pub is_verified: bool,
    /// It is the cluster.
    pub is_cluster: bool,
    pub has_certificate: bool,
}

/// What has become of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Asked,
    /// The same, and the disk did not take it.
    InMemory,
    /// It was in memory alone, and the process is gone.
    Lost,
    /// Its certificate is in use, and the disk did not take that: whether the key is there.
    InUse(bool),
    /// It was, and another is in use by now.
    Superseded,
    Kept,
}

impl Fate {
    /// The process is gone, or it is another one with a copy of the card. `is_there`: the key is on the disk.
    fn ends(&mut self, is_there: bool) {
        *self = match *self {
            Fate::InUse(true) if is_there => Fate::Asked,
            Fate::InMemory | Fate::InUse(_) | Fate::Superseded => Fate::Lost,
            fate => fate,
        };
    }

    fn is_superseded(&mut self) {
        if let Fate::InUse(_) = self {
            *self = Fate::Superseded;
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Board {
    keys: BTreeMap<Vec<u8>, Fate>,
    /// Of the certificate that the disk has whole.
    kept: Option<Vec<u8>>,
    /// That a supervisor has heard, and that the disk has.
    password: Option<String>,
    requests_us: VecDeque<i64>,
    refused_us: Option<i64>,
    since_refused: usize,
}

#[derive(Debug, Default)]
pub struct Judge {
    boards: Vec<Board>,
    /// What each key is asked for by.
    names: BTreeMap<Vec<u8>, String>,
}

impl Judge {
    pub fn new(boards: usize) -> Judge {
        Judge { boards: vec![Board::default(); boards], names: BTreeMap::new() }
    }

    /// The second's card is a copy of the first's. Under another name nothing comes of what is under way.
    pub fn cloned(&mut self, first: usize, second: usize, (pending, is_renamed): (&[u8], bool)) {
        let Board { mut keys, kept, password, .. } = self.boards[first].clone();
        keys.iter_mut().for_each(|(key, fate)| fate.ends(holds_key(pending, key)));
        if is_renamed {
            keys.values_mut().for_each(|fate| *fate = if *fate == Fate::Kept { Fate::Kept } else { Fate::Lost });
        }
        let board = &mut self.boards[second];
        (board.keys, board.kept, board.password) = (keys, kept, password);
    }

    /// A request left the board.
    pub fn sent(&mut self, board: usize, request: &Request, way: Way, now_us: i64) -> Result<(), String> {
        let is_shown = request.header("authorization").is_some() || supervisor::node_password(request).is_some();
        let is_secret = way.has_certificate || is_shown;
        let Request { method, path, .. } = request;
        if is_secret && !way.is_verified {
            return Err(format!("{method} {path} brings a secret to whoever answers: nobody was verified"));
        }
        if is_secret && !way.is_cluster {
            return Err(format!("{method} {path} brings a secret to somebody who is not the cluster"));
        }
        let board = &mut self.boards[board];
        board.requests_us.push_back(now_us);
        while board.requests_us.front().is_some_and(|first_us| *first_us < now_us - MINUTE_US) {
            board.requests_us.pop_front();
        }
        if board.requests_us.len() > REQUESTS_PER_MINUTE {
            return Err(format!("{} requests in a minute", board.requests_us.len()));
        }
        let is_asked = path.contains("/certificatesigningrequests") || path.ends_with("/client-kubelet.crt");
        if is_asked && board.refused_us.is_some_and(|us| now_us < us + MINUTE_US) {
            board.since_refused += 1;
            if board.since_refused > REQUESTS_AFTER_REFUSAL {
                return Err(format!(
                    "{} requests for a certificate within a minute after a refusal",
                    board.since_refused
                ));
            }
        }
        Ok(())
    }

    /// It was denied, could not be signed, or was signed wrongly.
    /// Answers whether that is news: in the minute after it the same is only what the board should not have asked for.
    pub fn refused(&mut self, board: usize, now_us: i64) -> bool {
        let board = &mut self.boards[board];
        let is_news = board.refused_us.is_none_or(|us| now_us >= us + MINUTE_US);
        if is_news {
            (board.refused_us, board.since_refused) = (Some(now_us), 0);
        }
        is_news
    }

    /// The server does not know the certificate in use any more: what is asked then is asked for that reason.
    pub fn unauthorized(&mut self, board: usize) {
        self.boards[board].refused_us = None;
    }

    /// Somebody had the settings read again, who may have cleared away what was refused: that is asked at once (seed 13669).
    pub fn reloaded(&mut self, board: usize) {
        self.boards[board].refused_us = None;
    }

    /// A request for a certificate reached the server. `pending`: the file of the key as it is whatever happens to the power.
    /// `has_disk`: the disk takes what is written. `is_over`: whether of a key nothing can come.
    pub fn asks(
        &mut self,
        board: usize,
        request: &Request,
        (pending, has_disk): (&[u8], bool),
        is_over: impl Fn(&[u8]) -> bool,
    ) -> Result<(), String> {
        let (name, key) = asked(request).ok_or("a request for a certificate that cannot be read")?;
        let known = self.names.entry(key.clone()).or_insert_with(|| name.clone());
        if *known != name {
            return Err(format!("two requests for one key: {known:?} and {name:?}"));
        }
        let board = &mut self.boards[board];
        if matches!(board.keys.get(&key), Some(Fate::Kept | Fate::InUse(_) | Fate::Superseded)) {
            return Err(format!("{name:?} is asked for with a key that a certificate in use has"));
        }
        let is_there = holds_key(pending, &key);
        if has_disk && !is_there {
            return Err(format!("{name:?} is asked for with a key that a power cut would take"));
        }
        let is_open = |fate: &Fate| matches!(fate, Fate::Asked | Fate::InMemory);
        let other = board.keys.iter().find(|(other, fate)| **other != key && is_open(fate) && !is_over(other));
        if let Some((other, _)) = other {
            let other = self.names.get(other).cloned().unwrap_or_default();
            return Err(format!("a second key: {name:?} is asked for although {other:?} may still be signed"));
        }
        if is_there {
            // It has taken the place of another one.
            let others = board.keys.values_mut().filter(|fate| matches!(fate, Fate::InUse(_)));
            others.for_each(|fate| *fate = Fate::InUse(false));
        }
        board.keys.insert(key, if is_there { Fate::Asked } else { Fate::InMemory });
        Ok(())
    }

    /// The process that asked so is gone: a key that it had in memory alone went with it (seed 427528).
    pub fn asker_is_gone(&mut self, board: usize, request: &Request) {
        let fate = asked(request).and_then(|(_, key)| self.boards[board].keys.get_mut(&key));
        if let Some(fate @ Fate::InMemory) = fate {
            *fate = Fate::Lost;
        }
    }

    /// A supervisor heard a password. `synced`: the file of it as it is whatever happens to the power.
    pub fn shows(&mut self, board: usize, password: &str, (synced, has_disk): (&[u8], bool)) -> Result<(), String> {
        let is_there = synced.starts_with(format!("{password}\n").as_bytes());
        if has_disk && !is_there {
            return Err("a supervisor hears a node password that a power cut would take".to_owned());
        }
        let board = &mut self.boards[board];
        if board.password.as_ref().is_some_and(|known| known != password) {
            return Err("a supervisor hears another node password than the one that the disk has".to_owned());
        }
        board.password = board.password.take().or_else(|| is_there.then(|| password.to_owned()));
        Ok(())
    }

    /// Whom the board goes by from now on, or for one request.
    pub fn trusts<'a>(&self, mut authorities: impl Iterator<Item = &'a [u8]>, cluster: &[&[u8]]) -> Result<(), String> {
        match authorities.all(|authority| cluster.contains(&authority)) {
            true => Ok(()),
            false => Err("a CA is trusted that is not the cluster's".to_owned()),
        }
    }

    /// A certificate takes the place of the one before. `is_taken`: the server has served a request with it.
    pub fn keeps(&self, is_taken: bool) -> Result<(), String> {
        match is_taken {
            true => Ok(()),
            false => Err("the old certificate is given up before the server has taken the new one".to_owned()),
        }
    }

    /// The disk did not take that.
    pub fn uses(&mut self, board: usize, leaf: &[u8]) {
        let key = der::key_of(leaf).unwrap_or_default();
        // Whatever was refused before it (seed 455905).
        self.boards[board].refused_us = None;
        self.boards[board].keys.values_mut().for_each(Fate::is_superseded);
        let fate = self.boards[board].keys.entry(key).or_insert(Fate::InMemory);
        *fate = Fate::InUse(*fate == Fate::Asked);
    }

    /// The files of that were written and synced.
    pub fn kept(&mut self, board: usize, leaf: &[u8]) {
        let key = der::key_of(leaf).unwrap_or_default();
        self.boards[board].keys.values_mut().for_each(Fate::is_superseded);
        self.boards[board].keys.insert(key.clone(), Fate::Kept);
        self.boards[board].kept = Some(key);
    }

    /// The process is gone, and with it what was in memory alone.
    /// `pending`: the file of the key.
    pub fn ends(&mut self, board: usize, pending: &[u8]) {
        self.boards[board].refused_us = None;
        let keys = self.boards[board].keys.iter_mut();
        keys.for_each(|(key, fate)| fate.ends(holds_key(pending, key)));
    }

    /// What the next process finds. What came after the certificate that was kept may be there whole, or not at all.
    pub fn starts(&mut self, board: usize, found: [Option<&[u8]>; 2]) -> Result<(), String> {
        let board = &mut self.boards[board];
        // A process counts its own: what one that lost its power asked in the same minute it cannot know (seed 4140812).
        board.requests_us.clear();
        let found = found.into_iter().flatten().find_map(whole).and_then(|leaf| der::key_of(&leaf));
        match (&board.kept, found) {
            (None, None) => Ok(()),
            (Some(_), None) => Err("there was an identity, and the next process finds none".to_owned()),
            (Some(kept), Some(key)) if *kept == key => Ok(()),
            (_, Some(key)) if board.keys.get(&key).is_some_and(|fate| *fate != Fate::Kept) => {
                board.keys.insert(key.clone(), Fate::Kept);
                board.kept = Some(key);
                Ok(())
            }
            _ => Err("the certificate that was kept is gone: an older one is there".to_owned()),
        }
    }

    /// In the end.
    pub fn ends_well(node_pem: Option<&[u8]>, pending: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let leaf = node_pem.and_then(whole).ok_or("there is no certificate on the disk")?;
        let key = der::key_of(&leaf).unwrap_or_default();
        match pending {
            Some(pending) if !holds_key(pending, &key) => Err("another key waits beside the certificate".to_owned()),
            _ => Ok(leaf),
        }
    }
}

/// By what name a certificate is asked for, and with which key.
fn asked(request: &Request) -> Option<(String, Vec<u8>)> {
    if let Some(key) = supervisor::key_asked_for(request) {
        // A supervisor keeps none.
        return Some((String::new(), key));
    }
    let body: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
    let (_, key) = der::asked_for(body["spec"]["request"].as_str()?)?;
    Some((body["metadata"]["name"].as_str()?.to_owned(), key))
}

/// Leaf of a file that has it and its key.
fn whole(node_pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(node_pem).ok()?;
    let leaf = section(text, "CERTIFICATE")?;
    let key = der::key_of(&leaf)?;
    holds_key(node_pem, &key).then_some(leaf)
}

/// Whether the private key in it is that of a public one.
fn holds_key(file: &[u8], key: &[u8]) -> bool {
    let private = std::str::from_utf8(file).ok().and_then(|text| section(text, "PRIVATE KEY"));
    let point = key.last_chunk::<65>();
    private.zip(point).is_some_and(|(private, point)| private.windows(point.len()).any(|bytes| bytes == point))
}

fn section(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----\n"))?;
    let (lines, _) = rest.split_once(&format!("-----END {label}-----"))?;
    STANDARD.decode(lines.replace('\n', "")).ok()
}

/// So long a board may need to come back once nothing is in its way. `was_denied`: somebody has denied its request or signed
/// it wrongly, after which it asks ever more rarely, at least once a day; else it asks each quarter of an hour, spread by
/// half of it, or when it has waited for a day already each hour.
pub fn patience_us(was_denied: bool) -> i64 {
    let quick_us = 100 * MINUTE_US + 30 * SECOND_US;
    if was_denied { 24 * 60 * MINUTE_US + quick_us } else { quick_us }
}
