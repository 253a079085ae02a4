//! Turns a simulated day without the API server, in which a condition changes every minute, into what a card is written.

use std::time::Duration;

use nodepulse::io::disk::{Disk, JOURNAL};
use nodepulse::journal::Write;

use super::card::{BLOCK_BYTES, Card};
use super::cluster::Result;
use super::outage::Written;
use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The agent decides in simulated time when to write what, and its own disk code writes all of it to a real file system.
/// Hours lie between two writes of that day, so the file system is brought to rest after each: what it has to say of one
/// does not wait for the next.
pub fn write_to(card: &Card) -> Result<Written> {
    let mut world = World::new();
    world.writes = Some(Vec::new());
    world.pass(10 * MINUTE)?;
    let earlier = world.writes.as_ref().map_or(0, Vec::len);
    (world.is_offline, world.changes_every) = (true, Some(MINUTE));
    world.pass(DAY)?;
    let writes = world.writes.unwrap_or_default();
    let folder = card.folder.join("day");
    let (mut disk, _, trouble) = Disk::open(&folder.display().to_string()).map_err(|error| error.to_string())?;
    if let Some(trouble) = trouble {
        return Err(trouble.to_string());
    }
    let mut written = Written::default();
    for (number, write) in writes.iter().enumerate() {
        card.settle()?;
        let before = card.written_bytes()?;
        disk.write(JOURNAL, write).map_err(|error| error.to_string())?;
        if number < earlier {
            continue;
        }
        written.own_bytes += own_bytes(write);
        card.settle()?;
        written.device_bytes += card.written_bytes()? - before;
        written.times += 1;
    }
    Ok(written)
}

/// The blocks that it fills, or changes a part of. (`write_bytes` in `/proc` would count the whole folio of page cache
/// that a block is in.)
fn own_bytes(write: &Write) -> u64 {
    let (start, bytes) = match write {
        Write::Append { at_bytes, bytes } => (*at_bytes, bytes),
        Write::Replace { bytes } => (0, bytes),
    };
    (start + bytes.len() as u64).next_multiple_of(BLOCK_BYTES) - start / BLOCK_BYTES * BLOCK_BYTES
}
