//! Turns any bytes into header blocks, one after the other, for our decoder and another author's: they agree on every list, and
//! what ours read comes back from our encoder. The first byte of each block says how long it is.

use nodepulse::http2::{Decoder, Encoder, Field, FieldList};
use shiguredo_http2::HpackDecoder;

type List = Vec<(Vec<u8>, Vec<u8>)>;

fn list(fields: &FieldList) -> List {
    fields.all().iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Names and values that are text, as all are that we send.
fn come_back(fields: &FieldList, encoder: &mut Encoder, decoder: &mut Decoder) {
    let texts =
        fields.all().iter().map(|(name, value)| Some((str::from_utf8(name).ok()?, str::from_utf8(value).ok()?)));
    let Some(texts) = texts.collect::<Option<Vec<_>>>() else { return };
    let ours: Vec<Field<'_>> = texts.iter().map(|(name, value)| Field::new(name, value)).collect();
    let mut block = Vec::new();
    encoder.encode(&ours, &mut block);
    let mut read = FieldList::default();
    assert_eq!(decoder.decode(&block, &mut read), Ok(()));
    assert_eq!(list(&read), list(fields));
}

/// `bytes` stand for the header blocks of one connection.
pub fn check(bytes: &[u8]) {
    let (mut ours, mut theirs) = (Decoder::new(4096), HpackDecoder::new(4096));
    let (mut encoder, mut reader) = (Encoder::default(), Decoder::new(4096));
    let mut fields = FieldList::default();
    let mut rest = bytes;
    while let Some((length, later)) = rest.split_first() {
        let (block, later) = later.split_at(usize::from(*length).min(later.len()));
        rest = later;
        let is_read = ours.decode(block, &mut fields).is_ok();
        if let Ok(other) = theirs.decode(block) {
            // It takes longer numbers than ours, and nothing else that ours refuses.
            assert!(is_read || block.windows(4).any(|bytes| bytes.iter().all(|byte| *byte >= 0x80)), "{block:x?}");
            let other: List = other.iter().map(|field| (field.name().to_vec(), field.value().to_vec())).collect();
            assert!(!is_read || fields.is_cut() || list(&fields) == other, "{block:x?}");
        } else {
            // It refuses fields that no message may have as well, and then their tables differ.
            theirs = HpackDecoder::new(0);
        }
        if !is_read {
            return;
        }
        if !fields.is_cut() {
            come_back(&fields, &mut encoder, &mut reader);
        }
    }
}
