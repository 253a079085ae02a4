//! Turns a program's bytes into what its headers promise: for which processor it is, and what it needs to start.

use super::cluster::Result;

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
const EXECUTABLE: u32 = 1;
const DT_NEEDED: u64 = 1;
const SHT_ARM_ATTRIBUTES: u32 = 0x7000_0003;

pub struct Elf<'a> {
    bytes: &'a [u8],
    pub bits: u8,
    pub machine: u16,
    /// `e_flags`: the ABI of floating point and more, by machine.
    pub flags: u32,
    segments: Vec<Segment>,
}

struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    bytes: usize,
}

impl<'a> Elf<'a> {
    /// Little-endian, as every target here is.
    pub fn read(bytes: &'a [u8]) -> Result<Elf<'a>> {
        let wide = match bytes.get(..6).ok_or("too short")? {
            [0x7f, b'E', b'L', b'F', 1, 1] => false,
            [0x7f, b'E', b'L', b'F', 2, 1] => true,
            other => return Err(format!("no little-endian ELF file: {other:?}")),
        };
        let mut elf = Elf { bytes, bits: if wide { 64 } else { 32 }, machine: 0, flags: 0, segments: Vec::new() };
        elf.machine = elf.half(18)?;
        elf.flags = elf.word(if wide { 48 } else { 36 })?;
        let table = elf.offset(if wide { 32 } else { 28 })?;
        let (size, count) = if wide { (elf.half(54)?, elf.half(56)?) } else { (elf.half(42)?, elf.half(44)?) };
        for at in (0..usize::from(count)).map(|number| table + number * usize::from(size)) {
            let [flags, offset, file_bytes] = if wide { [4, 8, 32] } else { [24, 4, 16] };
            let (kind, flags) = (elf.word(at)?, elf.word(at + flags)?);
            let segment =
                Segment { kind, flags, offset: elf.offset(at + offset)?, bytes: elf.offset(at + file_bytes)? };
            elf.segments.push(segment);
        }
        Ok(elf)
    }

    pub fn has_interpreter(&self) -> bool {
        self.segments.iter().any(|segment| segment.kind == PT_INTERP)
    }

    /// Whether it names a shared library.
    pub fn needs_a_library(&self) -> Result<bool> {
        let step = usize::from(self.bits / 4);
        for segment in self.segments.iter().filter(|segment| segment.kind == PT_DYNAMIC) {
            for at in (segment.offset..segment.offset + segment.bytes).step_by(step) {
                if self.offset(at)? as u64 == DT_NEEDED {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// A program without the header gets one from old kernels.
    pub fn has_executable_stack(&self) -> bool {
        let stack = self.segments.iter().find(|segment| segment.kind == PT_GNU_STACK);
        stack.is_none_or(|segment| segment.flags & EXECUTABLE != 0)
    }

    /// The build attributes that the linker wrote: of ARM and of RISC-V.
    pub fn attributes(&self) -> Result<Vec<Attribute>> {
        let wide = self.bits == 64;
        let table = self.offset(if wide { 40 } else { 32 })?;
        let (size, count) = if wide { (self.half(58)?, self.half(60)?) } else { (self.half(46)?, self.half(48)?) };
        for at in (0..usize::from(count)).map(|number| table + number * usize::from(size)) {
            if self.word(at + 4)? == SHT_ARM_ATTRIBUTES {
                let [offset, bytes] = if wide { [24, 32] } else { [16, 20] };
                let (from, bytes) = (self.offset(at + offset)?, self.offset(at + bytes)?);
                return attributes(self.bytes.get(from..from + bytes).ok_or("attributes beyond the file's end")?);
            }
        }
        Err("no build attributes".to_owned())
    }

    fn half(&self, at: usize) -> Result<u16> {
        self.number::<2>(at).map(u16::from_le_bytes)
    }

    fn word(&self, at: usize) -> Result<u32> {
        self.number::<4>(at).map(u32::from_le_bytes)
    }

    /// An address or a length: as wide as the program's own.
    fn offset(&self, at: usize) -> Result<usize> {
        let value = if self.bits == 64 { self.number::<8>(at).map(u64::from_le_bytes)? } else { self.word(at)?.into() };
        usize::try_from(value).map_err(|e| e.to_string())
    }

    fn number<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let found = self.bytes.get(at..at + N).ok_or_else(|| format!("it ends before byte {at}"))?;
        found.try_into().map_err(|_| "no number".to_owned())
    }
}

/// A tag and its value, of which one half is empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Attribute {
    pub tag: u64,
    pub number: u64,
    pub text: String,
}

/// The first part, which speaks of the whole file ("Addenda to, and Errata in, the ABI for the Arm Architecture").
fn attributes(section: &[u8]) -> Result<Vec<Attribute>> {
    let vendor = section.get(5..).ok_or("empty attributes")?;
    let vendor_bytes = vendor.iter().position(|byte| *byte == 0).ok_or("attributes of nobody")?;
    let is_riscv = vendor.starts_with(b"riscv");
    // The tag of the whole file, and a length of four bytes.
    let mut rest = vendor.get(vendor_bytes + 6..).ok_or("no attributes")?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = uleb(&mut rest)?;
        let is_text = if is_riscv { tag % 2 == 1 } else { matches!(tag, 4 | 5 | 67) };
        let mut attribute = Attribute { tag, number: 0, text: String::new() };
        if is_text {
            let end = rest.iter().position(|byte| *byte == 0).ok_or("an attribute without end")?;
            attribute.text = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
        } else {
            attribute.number = uleb(&mut rest)?;
        }
        found.push(attribute);
    }
    Ok(found)
}

fn uleb(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first().ok_or("an unfinished number")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than nine bytes".to_owned())
}
