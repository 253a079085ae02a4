//! Turns indexes into fields and fields into indexes: the static table of RFC 7541 appendix A, and the dynamic one (2.3).

/// Names and values in turn.
const STATIC: &str = "\
    :authority\n\n:method\nGET\n:method\nPOST\n:path\n/\n:path\n/index.html\n:scheme\nhttp\n:scheme\nhttps\n\
    :status\n200\n:status\n204\n:status\n206\n:status\n304\n:status\n400\n:status\n404\n:status\n500\n\
    accept-charset\n\naccept-encoding\ngzip, deflate\naccept-language\n\naccept-ranges\n\naccept\n\n\
    access-control-allow-origin\n\nage\n\nallow\n\nauthorization\n\ncache-control\n\ncontent-disposition\n\n\
    content-encoding\n\ncontent-language\n\ncontent-length\n\ncontent-location\n\ncontent-range\n\ncontent-type\n\n\
    cookie\n\ndate\n\netag\n\nexpect\n\nexpires\n\nfrom\n\nhost\n\nif-match\n\nif-modified-since\n\nif-none-match\n\n\
    if-range\n\nif-unmodified-since\n\nlast-modified\n\nlink\n\nlocation\n\nmax-forwards\n\nproxy-authenticate\n\n\
    proxy-authorization\n\nrange\n\nreferer\n\nrefresh\n\nretry-after\n\nserver\n\nset-cookie\n\n\
    strict-transport-security\n\ntransfer-encoding\n\nuser-agent\n\nvary\n\nvia\n\nwww-authenticate\n\n";
const STATIC_ENTRIES: usize = 61;
/// What an entry counts for besides its name and its value (RFC 7541 4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// Where each text begins, and one behind the last: a field is looked up with every answer.
const STARTS: [u16; 2 * STATIC_ENTRIES + 1] = {
    let mut starts = [0; 2 * STATIC_ENTRIES + 1];
    let (mut texts, mut left, mut at) = (STATIC.as_bytes(), starts.as_mut_slice().split_at_mut(1).1, 0);
    while let [byte, behind @ ..] = texts {
        (texts, at) = (behind, at + 1);
        if *byte == b'\n' {
            let [start, others @ ..] = left else { break };
            *start = at;
            left = others;
        }
    }
    starts
};

/// Counted from 0.
fn of_static_table<'a>(place: usize) -> Option<(&'a [u8], &'a [u8])> {
    let text = |number: usize| {
        let (start, next) = (*STARTS.get(number)?, *STARTS.get(number + 1)?);
        STATIC.as_bytes().get(usize::from(start)..usize::from(next).checked_sub(1)?)
    };
    text(2 * place).zip(text(2 * place + 1))
}

/// Which index stands for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// For name and value.
    Field(usize),
    /// For the name; 0 where none does.
    Name(usize),
}

/// Both tables as one. The dynamic one never counts more than its limit.
#[derive(Debug)]
pub(super) struct Table {
    /// Names and values, the oldest entry first.
    bytes: Vec<u8>,
    /// Their lengths.
    entries: Vec<(usize, usize)>,
    limit_bytes: usize,
}

impl Table {
    pub(super) fn new(limit_bytes: usize) -> Table {
        Table { bytes: Vec::new(), entries: Vec::new(), limit_bytes }
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// What the dynamic table counts for.
    fn counted_bytes(&self) -> usize {
        self.bytes.len() + ENTRY_BYTES * self.entries.len()
    }

    pub(super) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.evict(limit_bytes);
    }

    /// Puts a field in; what is too long for the table only empties it (RFC 7541 4.4).
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let counted_bytes = name.len() + value.len() + ENTRY_BYTES;
        self.evict(self.limit_bytes.saturating_sub(counted_bytes));
        if counted_bytes <= self.limit_bytes {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.entries.push((name.len(), value.len()));
        }
    }

    /// Drops the oldest until no more than this is left.
    fn evict(&mut self, limit_bytes: usize) {
        let mut counted_bytes = self.counted_bytes();
        let is_too_much = |(name, value): &&(usize, usize)| {
            let too_much = counted_bytes > limit_bytes;
            counted_bytes -= if too_much { name + value + ENTRY_BYTES } else { 0 };
            too_much
        };
        let dropped = self.entries.iter().take_while(is_too_much).count();
        let bytes: usize = self.entries.drain(..dropped).map(|(name, value)| name + value).sum();
        self.bytes.drain(..bytes);
    }

    /// The dynamic entries, the newest first.
    fn of_dynamic_table(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.entries.iter().rev().map_while(move |(name, value)| {
            let (older, entry) = rest.split_at_checked(rest.len().checked_sub(name + value)?)?;
            rest = older;
            entry.split_at_checked(*name)
        })
    }

    /// The same, counted from 0: what comes with each answer is not looked for one by one.
    fn of_dynamic_table_at(&self, place: usize) -> Option<(&[u8], &[u8])> {
        let (older, newer) = self.entries.split_at_checked(self.entries.len().checked_sub(place)?)?;
        let (name, value) = older.last()?;
        let end = self.bytes.len().checked_sub(newer.iter().map(|(name, value)| name + value).sum())?;
        self.bytes.get(end.checked_sub(name + value)?..end)?.split_at_checked(*name)
    }

    /// The field that an index stands for, counted from 1.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match index.checked_sub(STATIC_ENTRIES + 1) {
            Some(place) => self.of_dynamic_table_at(place),
            None => of_static_table(index.checked_sub(1)?),
        }
    }

    /// What stands for this field. The dynamic table is asked first: what is sent again and again is there. Nothing is compared but
    /// what has the same lengths.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Found {
        let mut end = self.bytes.len();
        for (index, lengths) in (STATIC_ENTRIES + 1..).zip(self.entries.iter().rev()) {
            let begin = end.saturating_sub(lengths.0 + lengths.1);
            let is_alike = *lengths == (name.len(), value.len());
            let entry = || self.bytes.get(begin..end)?.split_at_checked(name.len());
            if is_alike && entry() == Some((name, value)) {
                return Found::Field(index);
            }
            end = begin;
        }
        let mut named = 0;
        for (index, entry) in (1..).zip((0..).map_while(of_static_table)) {
            if entry.0 == name {
                if entry.1 == value {
                    return Found::Field(index);
                }
                // The lowest index may be the shortest one.
                named = if named == 0 { index } else { named };
            }
        }
        if named == 0 {
            let mut dynamic = (STATIC_ENTRIES + 1..).zip(self.of_dynamic_table());
            named = dynamic.find(|(_, entry)| entry.0 == name).map_or(0, |(index, _)| index);
        }
        Found::Name(named)
    }
}
