//! Turns the examples of RFC 7541 appendix C, and bytes that break its rules, into tests of both directions.

use super::*;

type Pair = (&'static str, &'static str);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Name and value of each field of a list.
fn pairs(fields: &FieldList) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.all().iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn owned(fields: &[Pair]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn decode(block: &[u8]) -> Result<Vec<(String, String)>, &'static str> {
    let mut fields = FieldList::default();
    Decoder::new(DEFAULT_TABLE_BYTES).decode(block, &mut fields)?;
    Ok(pairs(&fields))
}

/// What an index of the dynamic table stands for, from the newest on.
fn dynamic(table: &Table) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (62..).map_while(|index| table.get(index)).map(|(name, value)| (text(name), text(value))).collect()
}

/// Fields, their block in hexadecimal, and the dynamic table after it with its size.
type Step<'a> = (&'a [Pair], &'a str, &'a [Pair], usize);

fn decodes(table_bytes: usize, steps: &[Step<'_>]) {
    let (mut decoder, mut fields) = (Decoder::new(table_bytes), FieldList::default());
    for (list, hex, table, size) in steps {
        decoder.decode(&bytes(hex), &mut fields).unwrap();
        assert_eq!(pairs(&fields), owned(list));
        assert_eq!(dynamic(&decoder.table), owned(table));
        let counted: usize = table.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        assert_eq!(counted, *size);
    }
}

fn encodes(encoder: &mut Encoder, steps: &[Step<'_>]) {
    for (list, hex, table, _) in steps {
        let fields: Vec<Field<'_>> = list.iter().map(|(name, value)| Field::new(name, value)).collect();
        let mut block = Vec::new();
        encoder.encode(&fields, &mut block);
        assert_eq!(block, bytes(hex));
        assert_eq!(dynamic(&encoder.table), owned(table));
    }
}

const AUTHORITY: Pair = (":authority", "www.example.com");
const NO_CACHE: Pair = ("cache-control", "no-cache");
const CUSTOM: Pair = ("custom-key", "custom-value");
const FIRST: &[Pair] = &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY];
const SECOND: &[Pair] = &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY, NO_CACHE];
const THIRD: &[Pair] = &[(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), AUTHORITY, CUSTOM];

#[test]
fn appendix_c_1_integers() {
    for (value, prefix_bits, hex) in
        [(10, 5, "0a"), (1337, 5, "1f9a0a"), (42, 8, "2a"), (31, 5, "1f00"), (127, 7, "7f00")]
    {
        let mut written = Vec::new();
        write_integer(0, prefix_bits, value, &mut written);
        assert_eq!(written, bytes(hex));
        assert_eq!(Reader { left: &written }.integer(prefix_bits), Ok(value));
    }
}

#[test]
fn appendix_c_2_fields() {
    let custom = ("custom-key", "custom-header");
    decodes(4096, &[(&[custom], "400a637573746f6d2d6b65790d637573746f6d2d686561646572", &[custom], 55)]);
    decodes(4096, &[(&[(":path", "/sample/path")], "040c2f73616d706c652f70617468", &[], 0)]);
    decodes(4096, &[(&[("password", "secret")], "100870617373776f726406736563726574", &[], 0)]);
    decodes(4096, &[(&[(":method", "GET")], "82", &[], 0)]);
}

#[test]
fn appendix_c_3_requests_without_huffman() {
    let steps: &[Step<'_>] = &[
        (FIRST, "828684410f7777772e6578616d706c652e636f6d", &[AUTHORITY], 57),
        (SECOND, "828684be58086e6f2d6361636865", &[NO_CACHE, AUTHORITY], 110),
        (THIRD, "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565", &[CUSTOM, NO_CACHE, AUTHORITY], 164),
    ];
    decodes(4096, steps);
}

#[test]
fn appendix_c_4_requests_with_huffman_which_is_also_how_they_are_written() {
    let steps: &[Step<'_>] = &[
        (FIRST, "828684418cf1e3c2e5f23a6ba0ab90f4ff", &[AUTHORITY], 57),
        (SECOND, "828684be5886a8eb10649cbf", &[NO_CACHE, AUTHORITY], 110),
        (THIRD, "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", &[CUSTOM, NO_CACHE, AUTHORITY], 164),
    ];
    decodes(4096, steps);
    encodes(&mut Encoder::default(), steps);
}

const DATE_21: Pair = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
const DATE_22: Pair = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
const PRIVATE: Pair = ("cache-control", "private");
const LOCATION: Pair = ("location", "https://www.example.com");
const GZIP: Pair = ("content-encoding", "gzip");
const COOKIE: Pair = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
const FOUND: Pair = (":status", "302");
const TEMPORARY: Pair = (":status", "307");

/// The answers of C.5 and C.6, with their blocks.
fn answers<'a>(blocks: [&'a str; 3]) -> [Step<'a>; 3] {
    [
        (&[FOUND, PRIVATE, DATE_21, LOCATION], blocks[0], &[LOCATION, DATE_21, PRIVATE, FOUND], 222),
        (&[TEMPORARY, PRIVATE, DATE_21, LOCATION], blocks[1], &[TEMPORARY, LOCATION, DATE_21, PRIVATE], 222),
        (&[(":status", "200"), PRIVATE, DATE_22, LOCATION, GZIP, COOKIE], blocks[2], &[COOKIE, GZIP, DATE_22], 215),
    ]
}

#[test]
fn appendix_c_5_answers_without_huffman_in_a_table_of_256_bytes() {
    let first = "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54\
        6e1768747470733a2f2f7777772e6578616d706c652e636f6d";
    let third = "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f\
        3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b20\
        76657273696f6e3d31";
    decodes(256, &answers([first, "4803333037c1c0bf", third]));
}

#[test]
fn appendix_c_6_answers_with_huffman_in_a_table_of_256_bytes() {
    let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff\
        6e919d29ad171863c78f0b97c8e9ae82ae43d3";
    let third = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b3\
        35dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
    let steps = answers([first, "4883640effc1c0bf", third]);
    decodes(256, &steps);
    let mut encoder = Encoder::default();
    encoder.set_table_bytes(256);
    encoder.encode(&[], &mut Vec::new());
    encodes(&mut encoder, &steps);
}

#[test]
fn a_request_that_comes_again_costs_a_byte_for_each_field() {
    let token = format!("Bearer {}", "k8s.".repeat(230));
    let fields = [
        Field::new(":method", "PATCH"),
        Field::new(":scheme", "https"),
        Field::new(":path", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/board"),
        Field::new("content-type", "application/strategic-merge-patch+json"),
        Field::new("authorization", &token),
    ];
    let (mut encoder, mut first, mut second) = (Encoder::default(), Vec::new(), Vec::new());
    encoder.encode(&fields, &mut first);
    encoder.encode(&fields, &mut second);
    assert_eq!(second, [0xc1, 0x87, 0xc0, 0xbf, 0xbe]);
    let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES);
    for block in [first, second] {
        let mut list = FieldList::default();
        decoder.decode(&block, &mut list).unwrap();
        assert_eq!(list.all().get("authorization"), Some(token.as_bytes()));
    }
}

#[test]
fn what_comes_once_or_must_not_be_remembered_is_in_no_table() {
    let mut encoder = Encoder::default();
    let mut block = Vec::new();
    let huge = "x".repeat(4096);
    encoder.encode(
        &[
            Field::never("authorization", "}"),
            Field::once(":path", "{}"),
            Field::never(":method", "~~~"),
            Field::new("x", &huge),
        ],
        &mut block,
    );
    assert!(block.starts_with(&bytes("1f08 01 7d 04 02 7b7d 12 03 7e7e7e")), "{block:x?}");
    assert_eq!(dynamic(&encoder.table), []);
    assert_eq!(decode(&block).map(|fields| fields.len()), Ok(4));
}

#[test]
fn a_table_that_the_peer_makes_smaller_is_announced_before_the_next_field() {
    let mut encoder = Encoder::default();
    let encode = |encoder: &mut Encoder| {
        let mut block = Vec::new();
        encoder.encode(&[Field::new("~", "}")], &mut block);
        block
    };
    assert_eq!(encode(&mut encoder), bytes("40 01 7e 01 7d"));
    encoder.set_table_bytes(1 << 20);
    assert_eq!(encode(&mut encoder), [0xbe], "more than is used changes nothing");
    encoder.set_table_bytes(0);
    encoder.set_table_bytes(100);
    assert_eq!(encode(&mut encoder), bytes("20 3f45 40 01 7e 01 7d"), "the least and the last");
    encoder.set_table_bytes(33);
    assert_eq!(encode(&mut encoder), bytes("3f02 00 01 7e 01 7d"), "it fits no more");
    encoder.set_table_bytes(4096);
    assert_eq!(encode(&mut encoder), bytes("3fe11f 40 01 7e 01 7d"));
}

#[test]
fn a_block_that_breaks_a_rule_is_refused() {
    for (hex, why) in [
        ("80", "index 0"),
        ("be", "an index above both tables"),
        ("7e 01 62", "a name above both tables"),
        ("ff 80 80 80 80 01", "an index of five bytes"),
        ("40 01 61 05 62", "a value that ends early"),
        ("40 01", "a name that ends early"),
        ("40", "a block that ends within a field"),
        ("7f", "a block that ends within a number"),
        ("40 81 ff 01 62", "a name that is padding"),
        ("40 84 ff ff ff ff 01 62", "the end of the string within a name"),
        ("82 20", "a table size behind a field"),
        ("3f e2 1f", "a table above 4,096 bytes"),
    ] {
        assert!(decode(&bytes(hex)).is_err(), "{why}");
    }
    assert_eq!(
        decode(&bytes("20 3f e1 1f 82")),
        Ok(owned(&[(":method", "GET")])),
        "sizes at the beginning are allowed"
    );
    assert_eq!(decode(&[]), Ok(Vec::new()));
}

#[test]
fn a_list_that_is_too_long_is_cut_and_the_table_goes_on() {
    let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES);
    let mut fields = FieldList::default();
    // One entry of 4,000 bytes, named again and again: a byte becomes 4,000.
    let mut block = bytes("40 01 61 7f a1 1e");
    block.extend_from_slice(&[b'x'; 4000]);
    block.extend_from_slice(&[0xbe; 10_000]);
    block.extend_from_slice(&bytes("40 01 62 01 63"));
    decoder.decode(&block, &mut fields).unwrap();
    assert!(fields.is_cut());
    assert_eq!(fields.all().iter().count(), 4, "of 16 KiB");
    decoder.decode(&[0xbe], &mut fields).unwrap();
    assert!(!fields.is_cut());
    assert_eq!(pairs(&fields), owned(&[("b", "c")]));
}

#[test]
fn a_field_that_fills_the_whole_table_is_put_into_it_and_one_that_is_longer_is_not() {
    for (value_bytes, entries) in [(4096 - 32 - 1, 1), (4096 - 32, 0)] {
        let mut encoder = Encoder::default();
        encoder.encode(&[Field::new("~", &"}".repeat(value_bytes))], &mut Vec::new());
        assert_eq!(dynamic(&encoder.table).len(), entries);
    }
}

#[test]
fn a_list_is_whole_up_to_its_limit_with_32_bytes_for_each_field() {
    for (value_bytes, is_cut) in [(limits::HTTP2_FIELDS_BYTES - 66, false), (limits::HTTP2_FIELDS_BYTES - 65, true)] {
        let mut fields = FieldList::default();
        fields.push(b"a", b"b");
        fields.push(b"", &vec![b'x'; value_bytes]);
        assert_eq!(fields.is_cut(), is_cut);
    }
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", Field::new("authorization", "Bearer s")), "Field(authorization, Indexed)");
}
