//! Turns the list of a runtime's images, cut anywhere, into the largest of them, and keeps no more of it than that.
//!
//! ```text
//! runtime.v1.ListImagesResponse: field 1, once an image: 1 id, 2 tags, 3 digests, 4 bytes
//! ```

use crate::config::limits;
use crate::probe::ContainerImage;
use crate::protobuf::{self, Fields, Value};

/// What came of a list so far.
#[derive(Debug, Default)]
pub(super) struct Images {
    most: usize,
    /// In a kubelet's order: by size, then by id, the greatest first.
    largest: Vec<Image>,
    /// The beginning of a field of which the end is still to come.
    begun: Vec<u8>,
    /// How much of one is passed over, bytes.
    passed_over: u64,
    makes_no_sense: bool,
}

#[derive(Debug, Default)]
struct Image {
    bytes: u64,
    id: String,
    tags: Vec<String>,
    digests: Vec<String>,
}

impl Images {
    /// `most`: how many are wanted.
    pub fn new(most: usize) -> Images {
        Images { most, ..Images::default() }
    }

    /// The next piece of the message.
    pub fn take(&mut self, piece: &[u8]) {
        let mut came = std::mem::take(&mut self.begun);
        came.extend_from_slice(piece);
        let mut rest = came.as_slice();
        loop {
            let passed = usize::try_from(self.passed_over).map_or(rest.len(), |bytes| bytes.min(rest.len()));
            rest = rest.get(passed..).unwrap_or_default();
            self.passed_over -= passed as u64;
            let Some(length) = protobuf::first_field_bytes(rest) else { break };
            match usize::try_from(length) {
                Ok(length) if length <= limits::CRI_IMAGE_BYTES => {
                    let Some((field, after)) = rest.split_at_checked(length) else { break };
                    self.field(field);
                    rest = after;
                }
                // An image that nobody has, or no protobuf.
                _ => self.passed_over = length,
            }
        }
        self.begun = rest.to_vec();
    }

    fn field(&mut self, field: &[u8]) {
        for field in Fields::of(field) {
            match field {
                Some((1, Value::Bytes(message))) => match image(message) {
                    Some(image) => self.keep(image),
                    None => self.makes_no_sense = true,
                },
                Some(_) => {}
                None => self.makes_no_sense = true,
            }
        }
    }

    fn keep(&mut self, image: Image) {
        let place = self.largest.partition_point(|one| (one.bytes, &one.id) >= (image.bytes, &image.id));
        if place < self.most {
            self.largest.truncate(self.most - 1);
            self.largest.insert(place, image);
        }
    }

    /// The whole list has come. `None`: it makes no sense.
    pub fn into_largest(self) -> Option<Vec<ContainerImage>> {
        let is_whole = self.begun.is_empty() && self.passed_over == 0 && !self.makes_no_sense;
        let mut room_bytes = limits::CRI_IMAGE_NAMES_BYTES;
        let told = self.largest.into_iter().map(Image::told).take_while(|image| {
            let left_bytes = room_bytes.checked_sub(image.names_bytes());
            room_bytes = left_bytes.unwrap_or_default();
            left_bytes.is_some()
        });
        is_whole.then(|| told.collect())
    }
}

impl Image {
    /// As a Node has it: digests before tags, so many at most.
    fn told(self) -> ContainerImage {
        let names = self.digests.into_iter().chain(self.tags).take(limits::CRI_NAMES_PER_IMAGE).collect();
        ContainerImage { names, size_bytes: i64::try_from(self.bytes).ok().filter(|bytes| *bytes != 0) }
    }
}

/// `runtime.v1.Image`. A name that is too long is left out: cut it would be another one's.
fn image(message: &[u8]) -> Option<Image> {
    let mut image = Image::default();
    let text =
        |bytes: &[u8]| (bytes.len() <= limits::CRI_TEXT_BYTES).then(|| String::from_utf8_lossy(bytes).into_owned());
    let add = |names: &mut Vec<String>, name: &[u8]| {
        if names.len() < limits::CRI_NAMES_PER_IMAGE {
            names.extend(text(name));
        }
    };
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(id)) => image.id = text(id).unwrap_or_default(),
            (2, Value::Bytes(name)) => add(&mut image.tags, name),
            (3, Value::Bytes(name)) => add(&mut image.digests, name),
            (4, Value::Number(bytes)) => image.bytes = bytes,
            _ => {}
        }
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::put_bytes;

    fn image(id: &str, bytes: u64, digests: &[&str], tags: &[&str]) -> Vec<u8> {
        let mut image = Vec::new();
        put_bytes(&mut image, 1, id.as_bytes());
        tags.iter().for_each(|tag| put_bytes(&mut image, 2, tag.as_bytes()));
        digests.iter().for_each(|digest| put_bytes(&mut image, 3, digest.as_bytes()));
        image.push(4 << 3);
        let mut left = bytes;
        while left > 0x7f {
            image.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        image.push(left as u8);
        // As containerd has it: a user, and the image's own reference.
        put_bytes(&mut image, 7, b"\x0a\x05pause");
        image
    }

    fn list(images: &[Vec<u8>]) -> Vec<u8> {
        let mut message = Vec::new();
        images.iter().for_each(|image| put_bytes(&mut message, 1, image));
        message
    }

    fn largest(most: usize, message: &[u8]) -> Option<Vec<ContainerImage>> {
        let mut images = Images::new(most);
        images.take(message);
        images.into_largest()
    }

    fn names(images: &[ContainerImage]) -> Vec<&str> {
        images.iter().flat_map(|image| &image.names).map(String::as_str).collect()
    }

    #[test]
    fn the_largest_images_are_told_by_size_and_then_by_id_wherever_the_list_is_cut() {
        let message = list(&[
            image("sha256:1", 300_000, &["pause@sha256:11"], &["pause:3.10"]),
            image("sha256:2", 80_000_000, &[], &["small"]),
            image("sha256:4", 100, &[], &["least"]),
            image("sha256:3", 80_000_000, &["big@sha256:33"], &[]),
        ]);
        let whole = largest(3, &message).unwrap();
        assert_eq!(names(&whole), ["big@sha256:33", "small", "pause@sha256:11", "pause:3.10"]);
        assert_eq!(
            whole.iter().map(|image| image.size_bytes).collect::<Vec<_>>(),
            [80_000_000, 80_000_000, 300_000].map(Some)
        );
        for cut in 0..=message.len() {
            let mut images = Images::new(3);
            let (first, second) = message.split_at(cut);
            images.take(first);
            images.take(second);
            assert_eq!(images.into_largest().as_ref(), Some(&whole), "{cut}");
        }
        let mut images = Images::new(3);
        message.iter().for_each(|byte| images.take(&[*byte]));
        assert_eq!(images.into_largest(), Some(whole));
        assert_eq!(largest(0, &message), Some(Vec::new()));
        assert_eq!(largest(3, b""), Some(Vec::new()));
    }

    #[test]
    fn memory_does_not_grow_with_the_list_nor_with_an_image() {
        let mut images = Images::new(2);
        for number in 0..5_000 {
            images.take(&list(&[image(&format!("{number:04}"), number, &[], &["x".repeat(500).as_str()])]));
            assert!(images.largest.len() <= 2 && images.begun.is_empty());
        }
        // One of a megabyte, piece after piece, and behind it another.
        let huge = list(&[vec![0x55; 1_000_000], image("z", 9_000, &[], &["behind"])]);
        for piece in huge.chunks(16_000) {
            images.take(piece);
            assert!(images.begun.len() <= limits::CRI_IMAGE_BYTES, "{}", images.begun.len());
        }
        let told = images.into_largest().unwrap();
        assert_eq!((told.len(), told[0].names.as_slice()), (2, ["behind".to_owned()].as_slice()));
    }

    #[test]
    fn a_node_has_room_for_so_many_names_of_so_many_bytes() {
        let long: Vec<String> = (0..9).map(|number| format!("{number}{}", "n".repeat(500))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let told = largest(50, &list(&[image("a", 1, &long, &long), image("b", 0, &[&"n".repeat(513)], &[])])).unwrap();
        assert_eq!(told[0].names, long[..5]);
        assert_eq!(told[1], ContainerImage { names: Vec::new(), size_bytes: None }, "no name is cut");
        let many: Vec<_> = (0..50).map(|number| image(&number.to_string(), 7, &long, &[])).collect();
        let bytes: usize = largest(50, &list(&many)).unwrap().iter().map(ContainerImage::names_bytes).sum();
        assert!((10_000..=limits::CRI_IMAGE_NAMES_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_list_that_makes_no_sense_is_none() {
        let well = list(&[image("a", 1, &[], &["a"])]);
        for wrong in [
            &b"\x0b"[..],
            b"\x0a\x05\x0a\x09abc",
            b"\x0a",
            b"\x0a\x05abc",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(largest(3, &[&well, wrong].concat()), None, "{wrong:?}");
        }
        // Fields of tomorrow are passed over.
        assert_eq!(largest(3, &[&well[..], b"\x18\x07\x22\x02hi"].concat()).unwrap().len(), 1);
    }
}
