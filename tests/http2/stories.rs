//! Turns the public HPACK stories (header lists of real browsers, encoded by many programs) into a test of our decoder and encoder.
//!
//! `stories.txt` holds a part of them: the first lists of seven of the 32 stories of github.com/http2jp/hpack-test-case, as the
//! crate httlib-hpack 0.1.3 (MIT) carries them, by nine encoders. `HTTP2_STORIES` names another file of the same form:
//!
//! ```text
//! story 0
//! list                      the fields of one header block
//! field :method GET
//! by nghttp2 4096           an encoder, and the size of the table that its decoder allows
//! block glSI...             in base64, one for each list
//! ```

use std::{env, fs};

use base64::{Engine, engine::general_purpose::STANDARD};
use nodepulse::http2::{Decoder, Encoder, Field, FieldList};

type List = Vec<(String, String)>;

fn pairs(fields: &FieldList) -> List {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    fields.all().iter().map(|(name, value)| (text(name), text(value))).collect()
}

/// How often each encoder's blocks were read, and ours written.
fn replay(text: &str) -> (usize, usize) {
    let (mut lists, mut decoder, mut next): (Vec<List>, Option<Decoder>, usize) = (Vec::new(), None, 0);
    let (mut read, mut written) = (0, 0);
    let mut story = "";
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "story" => {
                written += write(&lists);
                (lists, story) = (Vec::new(), rest);
            }
            "list" => lists.push(Vec::new()),
            "field" => {
                let (name, value) = rest.split_once(' ').unwrap();
                lists.last_mut().unwrap().push((name.to_owned(), value.to_owned()));
            }
            "by" => {
                let size = rest.split_once(' ').unwrap().1.parse().unwrap();
                (decoder, next) = (Some(Decoder::new(size)), 0);
            }
            "block" => {
                let mut fields = FieldList::default();
                decoder.as_mut().unwrap().decode(&STANDARD.decode(rest).unwrap(), &mut fields).unwrap();
                assert_eq!(pairs(&fields), lists[next], "story {story}, list {next}");
                next += 1;
                read += 1;
            }
            _ => panic!("{line}"),
        }
    }
    (read, written + write(&lists))
}

/// Our own encoder, read by our decoder (others read it in `another.rs`).
fn write(lists: &[List]) -> usize {
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
    for list in lists {
        let fields: Vec<Field<'_>> = list.iter().map(|(name, value)| Field::new(name, value)).collect();
        let mut block = Vec::new();
        encoder.encode(&fields, &mut block);
        let mut read = FieldList::default();
        decoder.decode(&block, &mut read).unwrap();
        assert_eq!(&pairs(&read), list);
    }
    lists.len()
}

#[test]
fn the_public_stories_are_read_as_their_encoders_meant_them() {
    let (read, written) = match env::var("HTTP2_STORIES") {
        Ok(path) => replay(&fs::read_to_string(path).unwrap()),
        Err(_) => replay(include_str!("stories.txt")),
    };
    println!("{read} blocks read, {written} written");
    assert!(read > 500 && written > 50, "{read} {written}");
}
