//! Patterns with wildcards, as filters of EC2 and IAM policies have them.

/// `*` stands for any text, `?` for one byte.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || Some(byte) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn a_star_stands_for_any_text_and_a_question_mark_for_one_byte() {
        assert!(glob("ip-10-*.internal", "ip-10-20-0-4.internal"));
        assert!(glob("a?c*", "abc"));
        assert!(glob("*", ""));
        assert!(!glob("a?c", "ac"));
        assert!(!glob("", "a"));
        assert!(glob("*a*b", "xaybab"));
    }
}
