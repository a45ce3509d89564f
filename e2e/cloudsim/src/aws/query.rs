//! The query protocol: form parameters in, XML out.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::control::CloudError;

/// The flattened parameters of a request, such as `Filter.1.Name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(BTreeMap<String, String>);

impl Params {
    /// Parses `application/x-www-form-urlencoded`. Later duplicates win, as at AWS.
    pub(crate) fn parse(form: &[u8]) -> Self {
        let pairs = form
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=');
            let (key, value) = match at.and_then(|at| pair.split_at_checked(at)) {
                Some((key, value)) => (key, value.get(1..).unwrap_or_default()),
                None => (pair, &[][..]),
            };
            (percent_decode(key), percent_decode(value))
        });
        Self(decoded.collect())
    }

    /// Adds the parameters of `other`, which win.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Takes a parameter out.
    pub(crate) fn remove(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    pub(crate) fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A parameter that the API demands.
    pub(crate) fn need(&self, key: &str) -> Result<&str, CloudError> {
        self.get(key)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| {
                let text = format!("The request must contain the parameter {key}");
                CloudError::new("MissingParameter", text)
            })
    }

    /// A number.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, CloudError> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let value = text.parse().map_err(|_| {
            let text = format!("Invalid value '{text}' for {key}. It must be an integer in range");
            CloudError::new("InvalidParameterValue", text)
        })?;
        Ok(Some(value))
    }

    /// A boolean.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, CloudError> {
        match self.get(key) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(text) => {
                let text = format!("Invalid value '{text}' for {key}. It must be true or false");
                Err(CloudError::new("InvalidParameterValue", text))
            }
        }
    }

    /// Whether any parameter begins with `prefix.`, or is `prefix` itself.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.0.contains_key(prefix) || !self.below(prefix).is_empty()
    }

    /// `prefix.1`, `prefix.2`, … in numeric order.
    pub(crate) fn list(&self, prefix: &str) -> Vec<String> {
        let items = self.structs(prefix).into_iter();
        items.filter_map(|item| item.0.get("").cloned()).collect()
    }

    /// `prefix.member.N`, the lists of the ELB and STS APIs.
    pub(crate) fn members(&self, name: &str) -> Vec<String> {
        self.list(&format!("{name}.member"))
    }

    /// The structures `prefix.N.*` in numeric order.
    pub(crate) fn structs(&self, prefix: &str) -> Vec<Self> {
        let mut items: BTreeMap<u64, Self> = BTreeMap::new();
        for (rest, value) in self.below(prefix) {
            let (number, field) = rest.split_once('.').unwrap_or((rest, ""));
            if let Ok(number) = number.parse() {
                items
                    .entry(number)
                    .or_default()
                    .0
                    .insert(field.to_owned(), value.to_owned());
            }
        }
        items.into_values().collect()
    }

    fn below(&self, prefix: &str) -> Vec<(&str, &str)> {
        let start = format!("{prefix}.");
        let from = self.0.range(start.clone()..);
        let inside = from.take_while(|(key, _)| key.starts_with(&start));
        inside
            .filter_map(|(key, value)| key.strip_prefix(&start).map(|rest| (rest, value.as_str())))
            .collect()
    }
}

fn percent_decode(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let pair = rest
                    .as_slice()
                    .get(..2)
                    .and_then(|pair| std::str::from_utf8(pair).ok());
                match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
                    Some(decoded) => {
                        out.push(decoded);
                        rest.nth(1);
                    }
                    None => out.push(b'%'),
                }
            }
            other => out.push(*other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes an XML document element by element.
#[derive(Debug, Default)]
pub(crate) struct Xml {
    out: String,
}

impl Xml {
    /// An element with children.
    pub(crate) fn el(&mut self, tag: &str, children: impl FnOnce(&mut Self)) {
        self.open(tag);
        children(self);
        self.close(tag);
    }

    pub(crate) fn open(&mut self, tag: &str) {
        self.out.extend(["<", tag, ">"]);
    }

    pub(crate) fn close(&mut self, tag: &str) {
        self.out.extend(["</", tag, ">"]);
    }

    /// An element with text.
    pub(crate) fn text(&mut self, tag: &str, value: impl Display) {
        self.open(tag);
        escape(&value.to_string(), &mut self.out);
        self.close(tag);
    }

    /// An element with text, or nothing.
    pub(crate) fn opt(&mut self, tag: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(tag, value);
        }
    }

    /// A list of structures.
    pub(crate) fn list<T>(
        &mut self,
        tag: &str,
        item: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) {
        self.open(tag);
        for value in items {
            self.open(item);
            each(self, value);
            self.close(item);
        }
        self.close(tag);
    }

    /// A list of texts.
    pub(crate) fn texts<T: Display>(
        &mut self,
        tag: &str,
        item: &str,
        items: impl IntoIterator<Item = T>,
    ) {
        self.open(tag);
        for value in items {
            self.text(item, value);
        }
        self.close(tag);
    }

    /// The declaration and the root element with its namespace.
    pub(crate) fn document(
        root: &str,
        namespace: &str,
        children: impl FnOnce(&mut Self),
    ) -> String {
        let mut xml = Self::default();
        let head = ["<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<", root];
        xml.out.extend(head);
        if !namespace.is_empty() {
            xml.out.extend([" xmlns=\"", namespace, "\""]);
        }
        xml.out.push('>');
        children(&mut xml);
        xml.close(root);
        xml.out
    }

    /// Appends what another writer wrote.
    pub(crate) fn append(&mut self, other: &Self) {
        self.out.push_str(&other.out);
    }
}

fn escape(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\r' => out.push_str("&#13;"),
            // XML 1.0 has no way to write the other control characters.
            other if other.is_control() && other != '\n' && other != '\t' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_numeric_order_and_structures_keep_their_fields() {
        let params = Params::parse(
            b"Id.10=c&Id.2=b&Id.1=a&F.1.Name=x+y&F.1.Value.1=%26%e2%82%ac&F.2.Name=%zz&Idle=1",
        );
        assert_eq!(params.list("Id"), ["a", "b", "c"]);
        let filters = params.structs("F");
        assert_eq!(filters.len(), 2);
        assert_eq!(filters[0].get("Name"), Some("x y"));
        assert_eq!(filters[0].list("Value"), ["&€"]);
        assert_eq!(filters[1].get("Name"), Some("%zz"));
        assert!(params.has("F"));
        assert!(!params.has("I"));
        assert_eq!(params.need("Nope").unwrap_err().code, "MissingParameter");
    }

    #[test]
    fn text_is_escaped() {
        let text = Xml::document("A", "urn:x", |x| x.text("b", "<&>\"\u{1}"));
        assert!(text.ends_with("<A xmlns=\"urn:x\"><b>&lt;&amp;&gt;&quot;\u{fffd}</b></A>"));
    }
}
