//! Key text: how values are written into keys, tags and prefixes; the same here as in SQL.
//!
//! A template such as `product:{id}` is literal text with placeholders. Inside a value every byte of its UTF-8
//! text but `A-Z a-z 0-9 - . _ ~` is written as `%XX` with upper-case digits (RFC 3986, as `encodeURIComponent`
//! and Python's `quote(safe='')` do it), and NULL is `%N`. So a value cannot forge a separator, and two different
//! lists of values never give the same key.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use uuid::Uuid;

/// A value that can stand in a key, with the text that `pgevict.key` gives it in SQL.
///
/// Implemented for what has one such text: integers, `bool` (`true`, `false`), text, [`Uuid`], bytes (lower-case
/// hex) and `Option` of these (`None` is NULL). Floats are left out on purpose: for some of them PostgreSQL
/// prints other digits than Rust, and a key that differs in the last digit is never dropped. Other types go in as the
/// text that `pgevict.key` gives them before it is escaped: `char(n)` without its padding, `numeric` without trailing
/// zeros, `timestamptz` as `2026-11-30T10:00:00Z`, `interval` as `P1D`.
///
/// ```
/// use pgevict::event::{KeyValue, ValueText};
///
/// struct ProductId(i64);
///
/// impl KeyValue for ProductId {
///     fn write_to(&self, text: &mut ValueText<'_>) {
///         self.0.write_to(text);
///     }
/// }
///
/// assert_eq!(pgevict::key!("product:{}", ProductId(42)).as_str(), "product:42");
/// ```
pub trait KeyValue {
    /// Writes the whole value.
    fn write_to(&self, text: &mut ValueText<'_>);
}

/// Takes the text of one value and escapes it.
#[derive(Debug)]
pub struct ValueText<'a>(&'a mut String);

impl ValueText<'_> {
    /// Adds text of the value.
    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| !is_plain(byte)) {
            self.0.push_str(&rest[..at]);
            // The whole character: its bytes beyond the first are never plain either.
            let after = (at + 1..rest.len())
                .find(|at| rest.is_char_boundary(*at))
                .unwrap_or(rest.len());
            for byte in &rest.as_bytes()[at..after] {
                self.0.push('%');
                self.push_hex(byte >> 4, b'A');
                self.push_hex(byte & 15, b'A');
            }
            rest = &rest[after..];
        }
        self.0.push_str(rest);
    }

    /// The value is NULL.
    pub fn push_null(&mut self) {
        self.0.push_str("%N");
    }

    fn push_hex(&mut self, digit: u8, ten: u8) {
        self.0.push(char::from(if digit < 10 {
            b'0' + digit
        } else {
            ten + digit - 10
        }));
    }
}

impl Write for ValueText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// A byte that stands for itself in a value: RFC 3986, unreserved.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

macro_rules! by_display {
    ($($value:ty),*) => {$(
        impl KeyValue for $value {
            fn write_to(&self, text: &mut ValueText<'_>) {
                // Writing to a String never fails.
                let _ = write!(text, "{self}");
            }
        }
    )*};
}
by_display!(
    i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, bool, char, Uuid
);

macro_rules! by_str {
    ($($value:ty),*) => {$(
        impl KeyValue for $value {
            fn write_to(&self, text: &mut ValueText<'_>) {
                text.push(self);
            }
        }
    )*};
}
by_str!(str, String, Arc<str>, Box<str>, Cow<'_, str>);

impl KeyValue for [u8] {
    fn write_to(&self, text: &mut ValueText<'_>) {
        for byte in self {
            text.push_hex(byte >> 4, b'a');
            text.push_hex(byte & 15, b'a');
        }
    }
}

impl KeyValue for Vec<u8> {
    fn write_to(&self, text: &mut ValueText<'_>) {
        self.as_slice().write_to(text);
    }
}

impl<const N: usize> KeyValue for [u8; N] {
    fn write_to(&self, text: &mut ValueText<'_>) {
        self.as_slice().write_to(text);
    }
}

impl<T: KeyValue> KeyValue for Option<T> {
    fn write_to(&self, text: &mut ValueText<'_>) {
        match self {
            Some(value) => value.write_to(text),
            None => text.push_null(),
        }
    }
}

impl<T: KeyValue + ?Sized> KeyValue for &T {
    fn write_to(&self, text: &mut ValueText<'_>) {
        (**self).write_to(text);
    }
}

/// Fills a template that [`check_template`] has passed.
pub(super) fn fill(template: &str, names: &[&str], values: &[&dyn KeyValue]) -> String {
    let mut text = String::with_capacity(template.len() + 16 * values.len());
    let mut pieces = template.split('{');
    text.push_str(pieces.next().unwrap_or_default());
    for (nth, piece) in pieces.enumerate() {
        let (name, literal) = piece.split_once('}').unwrap_or((piece, ""));
        let at = match name {
            "" => Some(nth),
            name => names.iter().position(|other| *other == name),
        };
        if let Some(value) = at.and_then(|at| values.get(at)) {
            value.write_to(&mut ValueText(&mut text));
        }
        text.push_str(literal);
    }
    text
}

/// Refuses, when compiled, a template that does not fit its values.
#[doc(hidden)]
pub const fn check_template(template: &str, names: &[&str]) {
    let text = template.as_bytes();
    let (mut placeholders, mut named, mut separated, mut at) = (0, 0, true, 0);
    while at < text.len() {
        match text[at] {
            b'{' => {
                assert!(
                    separated,
                    "two placeholders need a separator such as `:` between them"
                );
                let start = at + 1;
                while at < text.len() && text[at] != b'}' {
                    at += 1;
                    assert!(
                        at == text.len() || text[at] != b'{',
                        "a `{{` inside a placeholder"
                    );
                }
                assert!(at < text.len(), "a `{{` without its `}}`");
                placeholders += 1;
                if at > start {
                    named += 1;
                    assert!(
                        is_among(text, start, at, names),
                        "a placeholder names no value: write `{{}}`, or hand its value over as `name` or `name = value`"
                    );
                }
                separated = false;
            }
            b'}' => panic!("a `}}` without its `{{`"),
            0 => panic!("U+0000, which PostgreSQL cannot store"),
            byte if !is_plain(byte) && byte != b'%' => separated = true,
            _ => {}
        }
        at += 1;
    }
    assert!(
        named == 0 || named == placeholders,
        "either all placeholders have names, or none has"
    );
    if named == 0 {
        assert!(
            placeholders == names.len(),
            "the template needs as many `{{}}` as there are values"
        );
    } else {
        let mut nth = 0;
        while nth < names.len() {
            assert!(
                has_placeholder(text, names[nth].as_bytes()),
                "a value that no placeholder names"
            );
            nth += 1;
        }
    }
}

const fn is_among(text: &[u8], start: usize, end: usize, names: &[&str]) -> bool {
    let mut nth = 0;
    while nth < names.len() {
        if names[nth].len() == end - start && is_at(text, start, names[nth].as_bytes()) {
            return true;
        }
        nth += 1;
    }
    false
}

const fn has_placeholder(text: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    while at + name.len() + 1 < text.len() {
        if text[at] == b'{' && is_at(text, at + 1, name) && text[at + 1 + name.len()] == b'}' {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_at(text: &[u8], start: usize, part: &[u8]) -> bool {
    let mut at = 0;
    while at < part.len() {
        if start + at >= text.len() || text[start + at] != part[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The [`Key`](crate::event::Key) of a template and its values: the text that `pgevict.key` and `watch` give in SQL.
///
/// Placeholders are `{}`, filled in order, or `{name}`, filled by a variable of that name or by `name = value`; all
/// of one kind. A template that does not fit its values, that holds U+0000, or that has two placeholders without a
/// separator between them does not compile. Braces cannot be literal text. Values: [`KeyValue`](crate::event::KeyValue).
///
/// Nothing here fails when run. A key over 1 MiB is an ordinary key for a cache (a watch drops it through the head
/// of its template), but an event that holds one is refused when it is emitted.
///
/// ```
/// use pgevict::key;
///
/// let (id, lang) = (42, "de/CH");
/// assert_eq!(key!("product:{}", id).as_str(), "product:42");
/// assert_eq!(key!("product:{id}:{lang}", id, lang).as_str(), "product:42:de%2FCH");
/// assert_eq!(key!("product:{id}:{lang}", id = id + 1, lang = None::<&str>).as_str(), "product:43:%N");
/// ```
///
/// ```compile_fail
/// let id = 42;
/// pgevict::key!("product:{}:{}", id);
/// ```
///
/// ```compile_fail
/// let id = 42;
/// pgevict::key!("product:{id}");
/// ```
///
/// ```compile_fail
/// let (a, b) = (1, 2);
/// pgevict::key!("product:{}{}", a, b);
/// ```
#[macro_export]
macro_rules! key {
    ($($parts:tt)*) => { $crate::__fill_template!(Key, $($parts)*) };
}

/// The [`Tag`](crate::event::Tag) of a template and its values; as [`key!`](crate::key).
///
/// ```
/// assert_eq!(pgevict::tag!("category:{}", "a b").as_str(), "category:a%20b");
/// ```
#[macro_export]
macro_rules! tag {
    ($($parts:tt)*) => { $crate::__fill_template!(Tag, $($parts)*) };
}

/// The [`Prefix`](crate::event::Prefix) of a template and its values; as [`key!`](crate::key).
///
/// ```
/// assert_eq!(pgevict::prefix!("product:{}:", 7).as_str(), "product:7:");
/// ```
#[macro_export]
macro_rules! prefix {
    ($($parts:tt)*) => { $crate::__fill_template!(Prefix, $($parts)*) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __fill_template {
    ($made:ident, $template:literal $(, $name:ident = $value:expr)+ $(,)?) => {
        $crate::__fill_template!(@ $made, $template, [$(stringify!($name)),+], [$($value),+])
    };
    ($made:ident, $template:literal $(, $value:expr)* $(,)?) => {
        $crate::__fill_template!(@ $made, $template, [$(stringify!($value)),*], [$($value),*])
    };
    (@ $made:ident, $template:literal, [$($name:expr),*], [$($value:expr),*]) => {{
        const NAMES: &[&str] = &[$($name),*];
        const { $crate::event::check_template($template, NAMES) };
        $crate::event::$made::of_template($template, NAMES, &[$(&$value as &dyn $crate::event::KeyValue),*])
    }};
}

#[cfg(test)]
mod tests;
