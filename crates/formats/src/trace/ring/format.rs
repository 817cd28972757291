//! What a kernel says of its own records: `events/*/*/format`, `events/header_page`, `events/header_event`.
//!
//! Each field has a line `field:TYPE NAME; offset:N; size:N; signed:N;` (tabs between). Offsets and sizes differ between versions,
//! configurations and word sizes, so nothing is known of a record but through these lines.

use super::expr;

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, without the brackets of arrays.
    pub name: String,
    /// Its type in C, with the brackets of arrays.
    pub ty: String,
    /// Where it is, in bytes from the start of the record.
    pub offset: usize,
    /// Its size in bytes; 0 if it takes the rest of the record.
    pub size: usize,
    /// Whether it has a sign.
    pub signed: bool,
}

impl Field {
    /// Whether the field holds place and length of the value (`__data_loc`) rather than the value.
    #[must_use]
    pub fn data_loc(&self) -> bool {
        self.ty.starts_with("__data_loc")
    }

    /// Like [`Field::data_loc`], with the place counted from the end of the field (`__rel_loc`).
    #[must_use]
    pub fn rel_loc(&self) -> bool {
        self.ty.starts_with("__rel_loc")
    }

    fn parse(line: &str) -> Option<Field> {
        let line = line.trim_start();
        let line = line
            .strip_prefix("field:")
            .or_else(|| line.strip_prefix("field special:"))?;
        let mut parts = line.split(';');
        let declaration = parts.next()?.trim();
        let mut field = Field {
            name: String::new(),
            ty: String::new(),
            offset: 0,
            size: 0,
            signed: false,
        };
        let (mut has_offset, mut has_size) = (false, false);
        for part in parts {
            let Some((key, value)) = part.trim().split_once(':') else {
                continue;
            };
            match key {
                "offset" => (field.offset, has_offset) = (value.parse().ok()?, true),
                "size" => (field.size, has_size) = (value.parse().ok()?, true),
                "signed" => field.signed = value == "1",
                _ => {}
            }
        }
        // A record is at most a page, and a page of pages not more than this.
        let sane = field.offset < 1 << 20 && field.size < 1 << 30;
        (has_offset && has_size && sane).then_some(())?;
        let (base, array) = declaration
            .find('[')
            .filter(|_| declaration.ends_with(']'))
            .map_or((declaration, ""), |at| declaration.split_at(at));
        let at = base.rfind([' ', '*']).map_or(0, |at| at + 1);
        field.name = base[at..].to_owned();
        field.ty = format!("{}{array}", base[..at].trim_end());
        Some(field)
    }
}

/// All lines of a text that describe fields.
fn fields(text: &str) -> Vec<Field> {
    text.lines().filter_map(Field::parse).collect()
}

/// One event: `events/SYSTEM/NAME/format`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFormat {
    /// Name of the event.
    pub name: String,
    /// What records of it have as their `common_type`.
    pub id: u16,
    /// All fields, the common ones too.
    pub fields: Vec<Field>,
    /// How to print it: a format and its arguments in C.
    pub print: String,
}

impl EventFormat {
    /// Reads a description. `None` if name, number or fields are missing.
    #[must_use]
    pub fn parse(text: &str) -> Option<EventFormat> {
        let mut out = EventFormat::default();
        let mut id = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("name:") {
                name.trim().clone_into(&mut out.name);
            } else if let Some(number) = line.strip_prefix("ID:") {
                id = number.trim().parse().ok();
            } else if let Some(print) = line.strip_prefix("print fmt:") {
                print.trim().clone_into(&mut out.print);
            }
        }
        out.id = id?;
        out.fields = fields(text);
        (!out.name.is_empty() && !out.fields.is_empty()).then_some(out)
    }

    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The names of the bits of a field, in the order in which the kernel looks for them; from `__print_flags` in the way
    /// to print it. Empty if it is not printed so.
    #[must_use]
    pub fn flags(&self, field: &str) -> Vec<(u64, String)> {
        let start = format!("__print_flags(REC->{field},");
        match self.print.split_once(&start) {
            Some((_, rest)) => expr::flag_list(rest),
            None => Vec::new(),
        }
    }
}

/// How the kernel prints a set of bits, by a list of names ([`EventFormat::flags`]).
#[must_use]
pub fn print_flags(mut value: u64, names: &[(u64, String)]) -> String {
    if value == 0 {
        return "none".to_owned();
    }
    let mut out = String::new();
    for (mask, name) in names {
        if *mask != 0 && value & mask == *mask {
            if !out.is_empty() {
                out.push('|');
            }
            out.push_str(name);
            value &= !mask;
        }
    }
    if value != 0 {
        let bar = if out.is_empty() { "" } else { "|" };
        out.push_str(&format!("{bar}{value:#x}"));
    }
    out
}

/// A page of the ring buffer: `events/header_page`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageFormat {
    /// Offset and size of the time of the first event.
    pub timestamp: (usize, usize),
    /// Offset and size of the word that says how many bytes of data there are.
    pub commit: (usize, usize),
    /// Offset and size of the events.
    pub data: (usize, usize),
}

impl PageFormat {
    /// Reads a description. `None` if a field that is needed is missing or has a senseless size.
    #[must_use]
    pub fn parse(text: &str) -> Option<PageFormat> {
        let fields = fields(text);
        let find = |name: &str| {
            let field = fields.iter().find(|field| field.name == name)?;
            Some((field.offset, field.size))
        };
        let page = PageFormat {
            timestamp: find("timestamp")?,
            commit: find("commit")?,
            data: find("data")?,
        };
        let word =
            |(offset, size): (usize, usize)| matches!(size, 4 | 8) && offset + size <= page.data.0;
        let sane = page.timestamp.1 == 8 && word(page.timestamp) && word(page.commit);
        let len = page.len();
        (sane && page.data.1 >= 8 && (64..=1 << 24).contains(&len)).then_some(page)
    }

    /// Size of a whole page, in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.data.0 + self.data.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KMALLOC: &str = "name: kmalloc\nID: 293\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long caller[8];\toffset:28;\tsize:64;\tsigned:0;\n\n\
        print fmt: \"ptr=%p gfp=%s\", REC->ptr, (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
        {( unsigned long)((( gfp_t)((((1UL))) << (6))) | (( gfp_t)(0x80u))), \"GFP_NOFS\"}, {0x40UL, \"__GFP_IO\"}) : \"none\"\n";

    #[test]
    fn fields_and_flags() {
        let format = EventFormat::parse(KMALLOC).expect("well formed");
        assert_eq!((format.name.as_str(), format.id), ("kmalloc", 293));
        let ptr = format.field("ptr").expect("there");
        assert_eq!(
            (ptr.offset, ptr.size, ptr.ty.as_str()),
            (16, 8, "const void *")
        );
        assert!(format.field("name").expect("there").data_loc());
        assert_eq!(
            format.field("caller").expect("there").ty,
            "unsigned long[8]"
        );
        let flags = format.flags("gfp_flags");
        assert_eq!(
            flags,
            [(0xc0, "GFP_NOFS".to_owned()), (0x40, "__GFP_IO".to_owned())]
        );
        assert_eq!(print_flags(0xc0, &flags), "GFP_NOFS");
        assert_eq!(print_flags(0x41, &flags), "__GFP_IO|0x1");
        assert_eq!(print_flags(0, &flags), "none");
    }

    #[test]
    fn incomplete_descriptions_are_none() {
        assert_eq!(EventFormat::parse("name: x\nformat:\n"), None);
        assert_eq!(EventFormat::parse("name: x\nID: 70000\n"), None);
        assert_eq!(
            PageFormat::parse("\tfield: u64 timestamp;\toffset:0;\tsize:8;\n"),
            None
        );
    }

    #[test]
    fn pages_of_32_bits() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
        let page = PageFormat::parse(text).expect("well formed");
        assert_eq!(
            (page.commit, page.data, page.len()),
            ((8, 4), (12, 4084), 4096)
        );
    }
}
