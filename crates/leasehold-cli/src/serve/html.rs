//! Text as HTML.

use std::fmt::{self, Display};

use crate::format::Escaped;

/// Displays a text of another program in HTML: neither as a tag nor as a control character.
pub(super) struct Html<'a>(pub(super) &'a str);

impl Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible = Escaped(self.0).to_string();
        let html = visible
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#39;");
        f.write_str(&html)
    }
}

/// Replaces each `{{key}}` of a template once. A value that contains braces stays as it is.
pub(super) fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("{{");
    let first = parts.next().unwrap_or_default().to_owned();

    parts.fold(first, |mut filled, part| {
        let (key, rest) = part
            .split_once("}}")
            .expect("each key of the page is closed");
        filled.push_str(&value(key));
        filled.push_str(rest);
        filled
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_neither_tag_nor_control_character() {
        let text = Html("<script>alert('1')</script>\"&\x1b\n").to_string();
        assert_eq!(
            text,
            r"&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\u{1b}\n"
        );
    }

    #[test]
    fn value_is_not_a_template() {
        let filled = fill("a{{x}}b{{y}}", |key| format!("<{key}{{{{y}}}}>"));
        assert_eq!(filled, "a<x{{y}}>b<y{{y}}>");
    }
}
