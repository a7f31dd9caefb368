//! A GGUF writer for tests: it writes what it is told, right or wrong.

/// Pieces of a file; [`GgufBuilder::build`] joins them.
#[derive(Clone, Default)]
pub(crate) struct GgufBuilder {
    keys: u64,
    metadata: Vec<u8>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
    alignment: Option<u32>,
}

/// Length and bytes.
pub(crate) fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// Element type, count and elements.
pub(crate) fn array(element: u32, items: &[Vec<u8>]) -> Vec<u8> {
    let count = items.len() as u64;
    [&element.to_le_bytes()[..], &count.to_le_bytes(), &items.concat()].concat()
}

impl GgufBuilder {
    /// A key whose value is already encoded.
    pub(crate) fn raw(mut self, key: impl AsRef<[u8]>, type_id: u32, value: &[u8]) -> Self {
        self.keys += 1;
        self.metadata.extend(string(key));
        self.metadata.extend(type_id.to_le_bytes());
        self.metadata.extend(value);
        self
    }
    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }
    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key, 6, &value.to_le_bytes())
    }
    pub(crate) fn bool(self, key: &str, value: bool) -> Self {
        self.raw(key, 7, &[value.into()])
    }
    pub(crate) fn str(self, key: &str, value: &str) -> Self {
        self.raw(key, 8, &string(value))
    }
    pub(crate) fn strings(self, key: &str, values: &[&str]) -> Self {
        let items: Vec<_> = values.iter().map(string).collect();
        self.raw(key, 9, &array(8, &items))
    }
    pub(crate) fn i32s(self, key: &str, values: &[i32]) -> Self {
        let items: Vec<_> = values.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        self.raw(key, 9, &array(5, &items))
    }
    /// Sets `general.alignment` and aligns the data to it.
    pub(crate) fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = Some(alignment);
        self.u32("general.alignment", alignment)
    }
    /// A tensor; `dims` fastest first.
    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, data: &[u8]) -> Self {
        self.tensors.push((name.to_owned(), dims.to_vec(), type_id, data.to_vec()));
        self
    }
    /// The file.
    pub(crate) fn build(&self) -> Vec<u8> {
        let alignment = self.alignment.unwrap_or(32) as usize;
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend(self.keys.to_le_bytes());
        file.extend(&self.metadata);
        let mut data = Vec::new();
        for (name, dims, type_id, bytes) in &self.tensors {
            file.extend(string(name));
            file.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| file.extend(dim.to_le_bytes()));
            file.extend(type_id.to_le_bytes());
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(alignment), 0);
        }
        if !data.is_empty() {
            file.resize(file.len().next_multiple_of(alignment), 0);
        }
        file.extend(data);
        file
    }
}
