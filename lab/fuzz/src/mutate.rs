//! Making inputs from kept ones.

use fastrand::Rng;

use crate::corpus::Corpus;

/// An input is not made longer than this.
const LEN_MAX: usize = 16 * 1024;

/// Numbers at which arithmetic goes wrong, as text.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "127",
    "256",
    "65535",
    "65536",
    "2147483647",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1e308",
    "nan",
    "00000000000000000",
];

/// Makes an input.
pub(crate) fn draw(corpus: &Corpus, rng: &mut Rng) -> Vec<u8> {
    let mut input = corpus.draw(rng).to_vec();
    // Few mutations pass the first checks of a parser, and many reach its last ones.
    let most = [1, 3, 12][rng.usize(..3)];
    for _ in 0..rng.u32(1..=most) {
        mutate(&mut input, corpus, rng);
        input.truncate(LEN_MAX);
    }
    input
}

fn mutate(input: &mut Vec<u8>, corpus: &Corpus, rng: &mut Rng) {
    match rng.u8(..12) {
        0 => flip(input, rng),
        1 => input.truncate(rng.usize(..=input.len())),
        2 => remove(input, rng),
        3 => repeat(input, rng),
        4 => insert_bytes(input, rng),
        5..=7 => replace_number(input, rng),
        8 | 9 => replace_integer(input, rng),
        10 => splice(input, corpus.draw(rng), rng),
        _ => swap_parts(input, rng),
    }
}

fn flip(input: &mut [u8], rng: &mut Rng) {
    if !input.is_empty() {
        let at = rng.usize(..input.len());
        input[at] = rng.u8(..);
    }
}

fn remove(input: &mut Vec<u8>, rng: &mut Rng) {
    let range = range(input.len(), rng);
    input.drain(range);
}

/// Repeats a part, a few times or so often that a recursion is deep.
fn repeat(input: &mut Vec<u8>, rng: &mut Rng) {
    let range = range(input.len(), rng);
    let times = [1, 3, 200][rng.usize(..3)];
    let part = input[range.clone()].repeat(times);
    input.splice(range.end..range.end, part);
}

fn insert_bytes(input: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let count = rng.usize(1..9);
    let bytes: Vec<u8> = (0..count).map(|_| special_byte(rng)).collect();
    input.splice(at..at, bytes);
}

fn special_byte(rng: &mut Rng) -> u8 {
    match rng.u8(..3) {
        0 => rng.u8(..),
        1 => *rng.choice(b" \r\n:/@%?#&=,[]{}+-*$~_|>\0").expect("a byte"),
        // The parts of a character that is longer than a byte.
        _ => *rng
            .choice(b"\xc3\xbc\xe2\x82\xac\xf0\x9f\x92\xa9\xff")
            .expect("a byte"),
    }
}

/// Replaces a run of digits with another number.
fn replace_number(input: &mut Vec<u8>, rng: &mut Rng) {
    let is_start = |at: &usize| {
        let is_digit = |at: usize| input.get(at).is_some_and(u8::is_ascii_digit);
        is_digit(*at) && !(*at > 0 && is_digit(*at - 1))
    };
    let starts: Vec<usize> = (0..input.len()).filter(is_start).collect();
    let Some(start) = rng.choice(&starts).copied() else {
        return insert_bytes(input, rng);
    };

    let digits = input[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let end = start + digits.count();
    let number = *rng.choice(NUMBERS).expect("a number");
    // Fields of a fixed width keep it in half of the cases.
    let width = if rng.bool() { end - start } else { 0 };
    let text = format!("{number:0>width$}");
    input.splice(start..end, text.into_bytes());
}

/// Replaces bytes with an integer, in either order of bytes.
fn replace_integer(input: &mut [u8], rng: &mut Rng) {
    let choices = [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        u64::MAX / 2,
        u64::MAX / 2 + 1,
        u64::from(u32::MAX),
        u64::from(u32::MAX) + 1,
        0x7FFF_FFFF,
        rng.u64(..),
    ];
    let number = *rng.choice(&choices).expect("a number");
    let bytes = if rng.bool() {
        number.to_le_bytes()
    } else {
        number.to_be_bytes()
    };
    let width = [1, 2, 4, 8][rng.usize(..4)];
    if input.len() < width {
        return;
    }

    // Numbers in binary formats are aligned.
    let at = rng.usize(..=input.len() - width) / width * width;
    let part = if rng.bool() {
        &bytes[..width]
    } else {
        &bytes[8 - width..]
    };
    input[at..at + width].copy_from_slice(part);
}

fn splice(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let into = range(input.len(), rng);
    let from = range(other.len(), rng);
    input.splice(into, other[from].iter().copied());
}

fn swap_parts(input: &mut [u8], rng: &mut Rng) {
    let range = range(input.len(), rng);
    let part = &mut input[range];
    if !part.is_empty() {
        part.rotate_left(rng.usize(..part.len()));
    }
}

fn range(len: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(..=len);
    let longest = [4, 32, len][rng.usize(..3)].min(len - start);
    start..start + rng.usize(..=longest)
}
