"""Secrets that tell by themselves what they are: tokens with a beginning of their own, keys, signed addresses.

Each is found without a name before it. A text is searched for one only if it has a part of it, which is quick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]

_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
# What a text must have for one to be in it, and the pattern, whose last group is the secret.
_TOKENS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("eyJ",), r"(?<![A-Za-z0-9+/=])(eyJ[\w-]{8,}+(?:\.[\w-]*+){0,4})"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_START}(gh[pousr]_\w{{10,}}+)"),
    (("github_pat_",), r"(github_pat_\w{10,}+)"),
    (("gl",), rf"{_START}(gl(?:pat|oas|dt|rt|ptt|cbt|ft|soat|agent|imt|ffct)-[\w.-]{{10,}}+)"),
    (("xox", "xapp-"), rf"{_START}((?:xox[a-z]|xoxe\.xox[a-z]|xapp)-[\w-]{{8,}}+)"),
    (("AIza",), rf"{_START}(AIza[\w-]{{20,}}+)"),
    (("GOCSPX-",), r"(GOCSPX-[\w-]{10,}+)"),
    (("ya29.", "1//0"), rf"{_START}(ya29\.[\w.-]{{8,}}+|1//0[\w-]{{20,}}+)"),
    (("dapi", "dose", "dkea", "dsapi"), rf"{_START}((?:dapi|dose|dkea|dsapi)[0-9a-f]{{32}}(?:-\d)?){_END}"),
    (("k_live_", "k_test_", "whsec_"), rf"{_START}((?:[sr]k_(?:live|test)|whsec)_\w{{8,}}+)"),
    (("sk-",), rf"{_START}(sk-(?:ant-|proj-|svcacct-|or-)?(?=[\w-]*\d)[\w-]{{16,}}+)"),
    (
        ("npm_", "pypi-", "dckr_", "hf_", "do", "shp", "lin_api_", "ntn_", "pul-", "dp.pt."),
        (
            rf"{_START}((?:npm_|pypi-|dckr_(?:pat|oat)_|hf_|do[opr]_v1_|shp(?:at|ca|pa|ss)_|lin_api_|ntn_|pul-|dp\.pt\.)"
            r"(?=[\w-]*\d)[\w-]{16,}+)"
        ),
    ),
    (("SG.",), rf"{_START}(SG\.[\w-]{{10,}}+\.[\w-]{{10,}}+)"),
    (("hvs.", "hvb.", "hvr."), rf"{_START}(hv[sbr]\.[\w-]{{16,}}+)"),
    (("s.",), r"(?<![\w.])(s\.(?=\w*\d)(?=\w*[A-Z])\w{24})(?!\w)"),
    (("key-",), rf"{_START}(key-[0-9a-f]{{32}}){_END}"),
    (("AKIA", "ASIA", "ABIA", "ACCA"), rf"{_START}((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{12,}}+){_END}"),
    (("EAA",), rf"{_START}(EAA(?:CEdEose0cBA|[A-Z])(?=\w*\d)\w{{60,}}+)"),
    (("AGE-SECRET-KEY-",), r"(AGE-SECRET-KEY-[0-9A-Z]{20,}+)"),
    (("bot",), rf"{_START}bot(\d{{8,10}}:[\w-]{{30,}}+)"),
    (("hooks.slack",), r"(?i)hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([\w/-]++)"),
    (("discord",), r"(?i)discord(?:app)?\.com/api/(?:v\d+/)?webhooks/([\w/-]++)"),
    (("webhook",), r"(?i)webhook\.office(?:365)?\.com/webhookb2/([\w@/.-]++)"),
    (("office",), r"(?i)outlook\.office(?:365)?\.com/webhook(?:b2)?/([\w@/.-]++)"),
    (("chat.googleapis",), r"(?i)chat\.googleapis\.com/v1/spaces/[\w-]+/messages\?([^\s'\"<>]++)"),
    (
        ("hooks.zapier", "hook.", "events.pagerduty"),
        r"(?i)(?:hooks\.zapier\.com/hooks/catch|hook\.[\w.]{0,20}make\.com|events\.pagerduty\.com/integration)/([\w/-]++)",
    ),
    (("SharedAccessSignature",), r"(?i)SharedAccessSignature[=\s]+((?:[^;\s'\"\\<])++)"),
    (("redential=", "REDENTIAL="), r"(?i)(?<![\w-])Credential=([^/\s,&'\"]++)"),
)
NEEDLES = tuple(
    needle for needles, _ in _TOKENS for needle in needles if needle not in ("s.", "gl", "do", "shp", "bot")
)
"""What a text must have for one of these tokens to be in it, but for those that are too short to tell."""
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----(?:[^-]|-(?!----))*+(?:-----END[A-Z0-9 ]{0,70}-----)?"
    r"|(?<=Private-Lines: )\d+\s(?:[A-Za-z0-9+/=]+\s?){1,100}"
    r"|(?<![A-Za-z0-9+/])b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\s]{20,}+"
)
# The second half of a pair of Amazon's keys, which alone looks like a digest in base64.
_PAIR_SECRET = r"(?<![A-Za-z0-9+/=])(?=[A-Za-z0-9+/]{0,39}[G-Zg-z+/])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"
_NEAR = 300
# A proof of identity after its scheme. With a digit or a sign in it: no word of a sentence.
_PROOF = (
    r"(?i)(?<![\w-])(?:(?:bearer|basic|negotiate|apikey|dpop|ntlm|ssws)\s{1,3}"
    r"(?=[a-z+/-]{0,4096}(?:[0-9_~=]|\.\w))([A-Za-z0-9._~+/-]{8,}+=*+)(?![\w=])"
    r"|(?:token|splunk|hmac)\s{1,3}(?![0-9a-f-]{32,}\b)(?=[a-z._-]{0,4096}\d)(?=[0-9._-]{0,4096}[a-z])([\w.~+/=-]{16,}+))"
)
_PROOF_WORDS = ("bearer", "basic", "negotiate", "apikey", "dpop", "ntlm", "ssws", "token", "splunk", "hmac")
_LISTS = (
    # the parts of requests that are signed
    r"(?i)(?:AWS4-HMAC-SHA256|AWS|SharedKey(?:Lite)?|Digest|Hawk|OAuth|MAC)\s{1,3}(?=[^\r\n]{0,200}"
    r"(?:Signature|response|mac|nonce)=)((?:[\w-]{1,60}=(?:\"[^\"]{0,2000}\"|[^\s,'\"]++)[,\s]{0,3})++)"
)


def token_spans(text: str) -> Iterator[Span]:
    """Yield where the secrets are."""
    for needles, pattern in _TOKENS:
        if any(needle in text for needle in needles):
            yield from _found(pattern, text)
    if "PRIVATE KEY" in text or "Private-Lines" in text or "b3BlbnNzaC1r" in text:
        yield from (each.span() for each in re.finditer(_PRIVATE_KEY, text))
    yield from _pairs_of_keys(text)
    lower = text.lower()
    if any(word in lower for word in _PROOF_WORDS):
        yield from _found(_PROOF, text)
    if "=" in text and any(word in lower for word in ("signature=", "response=", "mac=", "nonce=")):
        yield from _found(_LISTS, text)


def _found(pattern: str, text: str) -> Iterator[Span]:
    for each in re.finditer(pattern, text):
        yield each.span(each.lastindex or 0)


def _pairs_of_keys(text: str) -> Iterator[Span]:
    if "AKIA" not in text and "ASIA" not in text:
        return
    done = 0
    for key in re.finditer(r"A[KS]IA[A-Z0-9]{12,}+", text):
        start, done = max(done, key.start() - _NEAR), key.end() + _NEAR
        found = re.compile(_PAIR_SECRET).finditer(text, start, done + 40)
        yield from (each.span() for each in found)
