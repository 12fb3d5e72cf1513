-- inline: how large the texts and entries of streams may be. Readers find a larger text in the
-- job's record.
-- Defines: ENTRY_BYTES, INLINE_RESULT, INLINE_SPEC
local INLINE_SPEC, INLINE_RESULT = 8192, 65536 -- bytes
local ENTRY_BYTES = 65536 -- bytes of texts from which on an entry is written: a reader keeps the last until it reads another
