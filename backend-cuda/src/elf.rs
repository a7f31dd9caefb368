//! What forge reads from a cubin: the names of its kernels and the sizes of their parameters, so
//! that a launch is checked against the compiled signature.
//!
//! A cubin is a 64-bit little-endian ELF file. Kernel `k` has its code in section `.text.k` and its
//! attributes in `.nv.info.k`; attribute 0x17 describes one parameter (index, ordinal, offset, and
//! a word whose upper 14 bits are the size).

/// A kernel of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name as in the source.
    pub name: String,
    /// Bytes of each parameter in order; `None` if the cubin does not say.
    pub parameters: Option<Vec<usize>>,
}

/// The kernels of `cubin`.
///
/// # Errors
/// One sentence if the bytes are not a complete ELF file.
pub fn entries(cubin: &[u8]) -> Result<Vec<Entry>, String> {
    let sections = sections(cubin).ok_or("not a complete cubin")?;
    let mut found = Vec::new();
    for (name, _) in &sections {
        let Some(kernel) = name.strip_prefix(".text.") else { continue };
        let attributes = format!(".nv.info.{kernel}");
        let parameters = sections
            .iter()
            .find(|(name, _)| *name == attributes)
            .and_then(|(_, bytes)| parameters(bytes));
        found.push(Entry { name: kernel.to_owned(), parameters });
    }
    if found.is_empty() { Err("a cubin without kernels".into()) } else { Ok(found) }
}

/// Name and bytes of every section; `None` if one leaves the file.
fn sections(cubin: &[u8]) -> Option<Vec<(String, &[u8])>> {
    const NOBITS: u32 = 8;
    if cubin.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(u64_at(cubin, 0x28)?).ok()?;
    let (size, count) = (usize::from(u16_at(cubin, 0x3a)?), usize::from(u16_at(cubin, 0x3c)?));
    let names = usize::from(u16_at(cubin, 0x3e)?);
    let header = |index: usize| cubin.get(table.checked_add(index.checked_mul(size)?)?..);
    let bytes = |header: &[u8]| -> Option<&[u8]> {
        let start = usize::try_from(u64_at(header, 0x18)?).ok()?;
        let len = usize::try_from(u64_at(header, 0x20)?).ok()?;
        if u32_at(header, 4)? == NOBITS {
            return Some(&[]);
        }
        cubin.get(start..start.checked_add(len)?)
    };
    let strings = bytes(header(names)?)?;
    let mut all = Vec::with_capacity(count);
    for index in 1..count {
        let header = header(index)?;
        let name = strings.get(usize::try_from(u32_at(header, 0)?).ok()?..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        all.push((String::from_utf8_lossy(name).into_owned(), bytes(header)?));
    }
    Some(all)
}

/// Sizes of the parameters listed in `.nv.info.k`.
fn parameters(mut info: &[u8]) -> Option<Vec<usize>> {
    const WITH_SIZE: u8 = 4;
    const PARAMETER: u8 = 0x17;
    let mut found: Vec<(u16, usize)> = Vec::new();
    while info.len() >= 4 {
        let (format, attribute) = (info[0], info[1]);
        if format != WITH_SIZE {
            info = &info[4..];
            continue;
        }
        let len = usize::from(u16_at(info, 2)?);
        let value = info.get(4..4 + len)?;
        if attribute == PARAMETER {
            let size = u32_at(value, 8)? >> 18;
            found.push((u16_at(value, 4)?, usize::try_from(size).ok()?));
        }
        info = &info[4 + len..];
    }
    found.sort_unstable();
    let in_order = found.iter().enumerate().all(|(i, (ordinal, _))| i == usize::from(*ordinal));
    in_order.then(|| found.into_iter().map(|(_, size)| size).collect())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
