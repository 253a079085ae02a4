//! Turns single values into what settings are: truth values, numbers, time spans, paths, the kind of a network.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::duration;
use super::field::Field;
use super::limits;
use super::problem::{Findings, Problem, quoted};
use super::quantity::Quantity;

/// The API's own whole numbers.
pub(super) const MOST: u32 = i32::MAX as u32;

pub(super) fn text(field: &Field<'_>, _: &mut Findings) -> Result<String, Problem> {
    Ok(field.text()?.unwrap_or_default().to_owned())
}

pub(super) fn boolean(field: &Field<'_>, _: &mut Findings) -> Result<bool, Problem> {
    match field.text()?.unwrap_or_default() {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        other => Err(field.problem(format!("must be true or false, not {}", quoted(other)))),
    }
}

/// A whole number that is allowed to be in this range.
pub(super) fn number<T: TryFrom<u32>>(
    range: RangeInclusive<u32>,
) -> impl Fn(&Field<'_>, &mut Findings) -> Result<T, Problem> {
    move |field, _| number_within(field, &range, |number| T::try_from(number).ok())
}

fn number_within<T>(field: &Field<'_>, range: &RangeInclusive<u32>, fits: fn(u32) -> Option<T>) -> Result<T, Problem> {
    let text = field.text()?.unwrap_or_default();
    text.parse().ok().filter(|number| range.contains(number)).and_then(fits).ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        field.problem(format!("must be a whole number from {least} to {most}, not {}", quoted(text)))
    })
}

/// `-1` is as many as may be, as in a kubelet's configuration.
pub(super) fn images(field: &Field<'_>, findings: &mut Findings) -> Result<u32, Problem> {
    match field.text()?.unwrap_or_default() {
        "-1" => Ok(limits::NODE_IMAGES),
        _ => number(0..=MOST)(field, findings).map(|number: u32| number.min(limits::NODE_IMAGES)),
    }
}

/// A time span that is allowed to be this short.
pub(super) fn at_least(least: Duration) -> impl Fn(&Field<'_>, &mut Findings) -> Result<Duration, Problem> {
    move |field, _| match span(field)? {
        span if span >= least => Ok(span),
        span => Err(field.problem(format!("must be at least {least:?}, not {span:?}"))),
    }
}

pub(super) fn span(field: &Field<'_>) -> Result<Duration, Problem> {
    let text = field.text()?.unwrap_or_default();
    duration::parse(text).map_err(|wrong| field.problem(format!("{} {wrong}", quoted(text))))
}

pub(super) fn path(field: &Field<'_>, _: &mut Findings) -> Result<Option<String>, Problem> {
    field.path()
}

pub(super) fn absolute_path(field: &Field<'_>, _: &mut Findings) -> Result<String, Problem> {
    field.path()?.filter(|path| path.starts_with('/')).ok_or_else(|| field.problem("must be an absolute path"))
}

/// The path of a unix socket, as a kubelet writes it; none where nothing is given.
pub(super) fn unix_socket(field: &Field<'_>, _: &mut Findings) -> Result<Option<String>, Problem> {
    let text = field.text()?.unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let path = text.strip_prefix("unix://").unwrap_or(text);
    let fits = path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES && !path.contains('\0');
    let problem = || {
        field.problem(format!("must be a socket such as unix:///run/containerd/containerd.sock, not {}", quoted(text)))
    };
    fits.then(|| Some(path.to_owned())).ok_or_else(problem)
}

/// The most that an address of a unix socket holds.
const SOCKET_PATH_BYTES: usize = 107;

/// `profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Every cadence as a kubelet has it.
    Lan,
    /// Paid by the byte: a SIM card.
    Metered,
    /// Where each byte counts.
    Satellite,
}

pub(super) fn profile(field: &Field<'_>, _: &mut Findings) -> Result<Profile, Problem> {
    match field.text()?.unwrap_or_default() {
        "lan" => Ok(Profile::Lan),
        "metered" => Ok(Profile::Metered),
        "satellite" => Ok(Profile::Satellite),
        other => Err(field.problem(format!("must be lan, metered or satellite, not {}", quoted(other)))),
    }
}

/// A terabyte: no board talks so much, and seconds times bytes stay numbers.
const MOST_BYTES: u64 = 1_000_000_000_000;

/// No budget where nothing is given.
pub(super) fn daily_bytes(field: &Field<'_>, _: &mut Findings) -> Result<Option<u64>, Problem> {
    let Some(text) = field.text()? else { return Ok(None) };
    let bytes = Quantity::parse(text).ok().and_then(|quantity| u64::try_from(quantity.value()).ok());
    let bytes = bytes.filter(|bytes| (1..=MOST_BYTES).contains(bytes));
    let problem = || field.problem(format!("must be a quantity of bytes such as 3M, up to 1T, not {}", quoted(text)));
    bytes.ok_or_else(problem).map(Some)
}
