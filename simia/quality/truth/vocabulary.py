"""Words for actions, consent and refusal in English, Chinese and Japanese. To add a language, add its words to each table.

Where a text has no word of these tables, as in other languages, the checks that read them abstain.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple


class Action(NamedTuple):
    """A family of actions. `tools`: words of the names of tools that do it; `also`: words of tools that do it among other things;
    `done`: English participles; `verbs`: English forms in a proposal; `cjk`: stems in Chinese and Japanese."""

    tools: frozenset[str]
    also: frozenset[str]
    done: str
    verbs: str
    cjk: str


def make_action(tools: str, also: str, done: str, verbs: str, cjk: str) -> Action:
    return Action(frozenset(tools.split()), frozenset(also.split()), done, verbs, cjk)


ACTIONS = {
    "cancel": make_action(
        "cancel withdraw void terminate", "delete remove update close modify return refund resolve process unsubscribe", "cancell?ed|withdrawn|voided", "cancel\\w*", "取消|撤销|撤回|退订|キャンセル|取り消|解約"),
    "refund": make_action(
        "refund reimburse", "cancel return exchange remove issue process credit certificate modify update apply voucher adjust pay send", "refunded|reimbursed", "refund\\w*|money back", "退款|退回|退票(?!费)|退您|退给|退掉|返金|払い戻|払戻"),
    "return": make_action("return", "exchange refund create request process label send pickup", "returned", "return\\w*|send\\w* back", "退货|退还|返品|返却"),
    "exchange": make_action("exchange swap replace", "modify update change return order create", "exchanged|swapped", "exchang\\w*|swap\\w*|replac\\w*", "换货|更换|换成|交換"),
    "send": make_action(
        "send email mail message notify forward reply sms post text share invite",
        "create submit reset cancel update issue request contact book schedule order place process transfer add confirm", "sent|emailed|e-mailed|mailed|messaged|notified|forwarded|texted", "send\\w*|sent|e-?mail\\w*|forward\\w*|mail\\w*|notify|repl(?:y|ies)|invit\\w*|message\\w*|write", "发送|发给|发出|已发|寄出|寄给|通知|转发|回复|送信|送付|お送り|送り|メール|通知|返信|転送"),
    "book": make_action(
        "book reserve schedule appointment reservation booking rebook", "create add make place set order hold update change move reschedule confirm event calendar",
        "booked|reserved|scheduled|rebooked", "book\\w*|reserv\\w*|schedul\\w*|appointment", "预订|预定|预约|订了|订好|安排|预留|挂号|予約|手配|押さえ|ご用意|お取り|指定"),
    "move": make_action("move reschedule change_date rebook", "update change modify edit set event exchange shift book transfer reassign", "moved|rescheduled|postponed|shifted", "mov\\w*|reschedul\\w*|postpon\\w*|shift\\w*|push\\w*", "改期|改到|挪到|移动|移到|改签|延后|推迟|移動|移し|振り替|変更|日程"),
    "reset": make_action("reset", "update change send create set request", "reset", "reset\\w*", "重置|重设|リセット|再設定"),
    "update": make_action(
        "update modify change edit set correct adjust rename replace", "add move remove create append write save submit patch upgrade exchange reschedule apply switch toggle enable disable reset extend correct record log cells book rows", "updated|changed|modified|corrected|adjusted|renamed|edited|raised|lowered", "updat\\w*|chang\\w*|modif\\w*|correct\\w*|adjust\\w*|renam\\w*|edit\\w*|switch\\w*|replac\\w*|set|redirect\\w*", "更新|修改|更改|改为|改成|变更|更正|调整|改好|変更|更新|修正|訂正|書き換え"),
    "add": make_action(
        "add append insert", "create update set modify put book place write save apply attach register schedule edit record note log", "added", "add\\w*|put|append\\w*|includ\\w*|block\\w*", "添加|增加|加上|加入|新增|追加|加え|入れ|付け"),
    "create": make_action(
        "create open file submit register log raise make new", "add book place write save schedule set issue generate send report request enroll note post upload order ticket transfer escalate", "created|opened|filed|submitted|registered|logged|raised", "creat\\w*|open\\w*|fil(?:e|ing)|submit\\w*|regist\\w*|log\\w*|raise", "创建|新建|建立|提交|登记|注册|开具|开了|作成|登録|起票|提出|申請|発行"),
    "delete": make_action("delete remove clear", "cancel update move archive set edit modify replace", "deleted|removed", "delet\\w*|remov\\w*|tak\\w* off|drop\\w*", "删除|移除|删掉|去掉|削除|外し|取り除"),
    "pay": make_action("pay charge payment transfer", "order book place purchase buy checkout process create settle change add modify update exchange fine", "paid|charged|transferred", "pay\\w*|charg\\w*|transfer\\w*", "支付|付款|转账|扣款|缴纳|缴清|支払|振込|振り込|請求"),
    "order": make_action("order purchase buy checkout", "place create book submit cart reorder replenish", "ordered|purchased|bought", "order\\w*|purchas\\w*|buy\\w*", "下单|购买|订购|采购|购票|出票|注文|購入|発注"),
    "apply": make_action("apply redeem use coupon voucher", "add update set discount modify certificate", "applied|redeemed", "appl(?:y|ied)|redeem\\w*|us(?:e|ing)", "使用|抵扣|兑换|应用|適用|利用"),
    "renew": make_action("renew extend", "update change modify set add", "renewed|extended", "renew\\w*|extend\\w*", "续借|续期|延长|续约|延長|更新"),
    "subscribe": make_action("subscribe unsubscribe activate deactivate enable disable addon option suspend resume", "add change update set remove cancel turn toggle switch", "activated|enabled|subscribed|deactivated|disabled|suspended|unsubscribed", "subscri\\w*|unsubscri\\w*|activat\\w*|enabl\\w*|turn\\w* (?:on|off)|disabl\\w*|suspend\\w*", "开通|订阅|办(?=理|了|好|一|\\d)|退订|停用|启用|申し込み|お申込|有効化|停止|解除"),
    "upgrade": make_action("upgrade downgrade", "update change modify set exchange add switch", "upgraded|downgraded", "upgrad\\w*|downgrad\\w*", "升级|升舱|降级|アップグレード"),
    "transfer": make_action("transfer escalate handoff", "move create assign route person human agent send ticket", "transferred|escalated", "transfer\\w*|escalat\\w*", "转接|转给|调拨|转移|转到|おつなぎ|引き継|移管|移動"),
    "save": make_action("save write store upload download copy record", "create add append update set edit move note attachment", "saved|stored|uploaded|copied|recorded", "sav\\w*|stor\\w*|upload\\w*|cop(?:y|ied)|record\\w*|writ\\w*", "保存|上传|复制|写入|记录|保存|アップロード|コピー|記録|書き込"),
    "block": make_action("block unblock bar lock freeze unlock", "suspend disable restrict update set hold report deactivate", "blocked|unblocked|barred|locked|frozen|unlocked|unfrozen", "block\\w*|bar|lock\\w*|freez\\w*|unlock\\w*", "冻结|挂失|锁定|解锁|屏蔽|封锁|停止|ロック|凍結|遮断"),
    "hold": make_action("hold place", "reserve book add create", "placed", "plac\\w*|hold\\w*|put\\w* aside", "预留|取り置|確保"),
}  # fmt: skip


@cache
def find_action_words(name: str) -> re.Pattern[str]:
    """Return the pattern of an action's words in a proposal or a policy, in lower case."""
    return re.compile(rf"\b(?:{ACTIONS[name].verbs})\b|{ACTIONS[name].cjk}")


VERB = "(?P<verb>" + "|".join(f"(?:{action.done})" for action in ACTIONS.values()) + ")"
DONE = re.compile(
    r"\b(?P<who>i(?:['’]ve| have)|we(?:['’]ve| have)|(?:has|have)(?: now| just| also| already| both| all)?(?: successfully)? been|(?:is|are) now)"
    rf"(?: (?:now|just|also|already|successfully|both|all|gone ahead and|gone ahead, and))* {VERB}\b"
)
DONE_LEADS = (
    "i've",
    "i’ve",
    "i have",
    "we've",
    "we’ve",
    "we have",
    " been",
    "is now",
    "are now",
)  # DONE has one of these
# The beginning of a sentence: "Moved. See you …", "Done, cancelled your order". A participle there can also be a label or an
# adjective: "Ordered on: 10 May", "Booked by: Ann", "Returned items are …".
ENDS_CLAIM = r"(?: and \w+| in full| as requested)?(?:[.!]|,(?! \w+,? or )|\s*$|\s*\n)"
HAS_OBJECT = (
    r" (?:it|them|that|these|those|this|you|your|the|an?|my|our|his|her|their|him|both|all|everything|successfully)\b| (?:[a-z]+ )?#?[a-z]+-?\d"
    r"|(?: (?!(?:is|are|was|were|can|cannot|will|may|must|should|has|have)\b)[^!?:;\n ]*[^.!?:;,\n ]){0,5} (?:for|to) (?:you\b(?!:| (?:is|are|takes?)\b)|your\b(?! \w+ (?:is|are|takes?)\b))"
)
DONE_AT_START = re.compile(
    rf"(?P<who>)(?:all )?(?P<sure>(?:done[.,:!]? (?:and )?)?(?:successfully )?){VERB}\b(?P<object>{HAS_OBJECT})?(?P<ends>{ENDS_CLAIM})?"
)
STARTS = re.compile(r"(?:^|[.!?:\n] |\n|[-*] )(?=[a-z])")
CLAIMS_IN_CJK = ("已", "刚", "了", "成功", "完", "まし", "済")
GENERIC_DONE = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|great|perfect|thanks?|thank you|sure|alright)[,.! ]+)?(?:(?:it|that)['’]?s )?(?:all )?(?:done|all set|completed)\b"
    r"|^[^。！？\n]{0,20}(?:已经?(?:为您|帮您|给您)?(?:办好|完成|处理好|搞定)|(?<![没未不])(?:都)?(?:办好|搞定|完成|约好|订好|约上|订上|改好|退好|报好|取消好)了(?!吗|么|的话))"
    r"|^\W*(?:はい、)?(?:お手続き(?:が|は)?|手続き(?:が|は)?|処理(?:が|は)?)?完了(?:いた|致)?しました"
)
CJK_DONE = re.compile(
    r"(?P<zh>(?:已经?|刚刚?|现已|均已)[^，。！？；：、,.!?;:\n（(]{0,24}?(?P<a>"
    + "|".join(action.cjk for action in ACTIONS.values())
    + r")(?!中|前|后)"
    r"|(?P<b>" + "|".join(action.cjk for action in ACTIONS.values()) + r")(?:成功|好了|完成|完毕|了(?!解|吗|么|的话))"
    r"|(?P<c>"
    + "|".join(action.cjk for action in ACTIONS.values())
    + r")[^、。！？,.!?\n]{0,2}?(?:(?:いた|致)?しました|りました|きました|えました|ておきました|済みです|を完了|が完了))"
)
NOT_DONE = re.compile(
    r"\b(?:not|never|n['’]t|no|nothing|none|neither|nor|any|if|once|when|after|until|before|unless|would|could|can|will|should|cannot|whether|as soon as|already|hasn|haven|yet to|"
    r"previously|earlier|still)\b[^.!?\n]{0,48}$|(?:\bto|\bbe)\s$",
)
CJK_NOT_DONE = re.compile(
    r"(?:没有?|未|不|尚|无法|不能|如果|若|等|待|一旦|之前|如需|请|是否|可以|将|会|您|曾|系统显示|显示|该订单|状态|还)[^，。！？,!?\n]{0,12}$|(?:場合|れば|たら|まだ|以前|前に|すでに|既に|お客様)[^、。！？,!?\n]{0,16}$"
)
CJK_NOT = re.compile(
    r"[可能想]|不[再予]|不是|不支持|没|無|无法|未|别|过期|超过|截止|限|でき|ません|なく"
)  # "已经出餐不能取消了" refuses
CJK_AFTER_NOT = re.compile(
    r"^不|^ら|^得了|^[^，。！？、,!?\n]{0,10}(?:吗|么|？|前|之后|后|的话|场合|場合|ません|ところ|たら|れば|后再|才)"
)

YES = re.compile(
    r"\b(?:y|yes|yeah|yea|yep|yup|ya|aye|sure|ok|okay|okey|k|please|pls|plz|go|do|confirm(?:ed|s)?|correct|proceed|agreed?|fine|absolutely|definitely|certainly|"
    r"perfect|great|right|sounds|works|approve[ds]?|accept(?:ed)?|affirmative|exactly|good|lovely|wonderful|excellent|alright|course|"
    r"happy|that['’]?s (?:it|the one|fair)|let['’]?s|you do|fire away|send it|book it|indeed|deal|cool|brilliant|super|make it|i['’]?ll take|i['’]?d like|i want|thumbs up|"
    r"why not|permission|green light|yess+|yup|thank(?:s| you)|thx|both|all of them|the (?:first|second|third|former|latter|last|other)|we do|i do|it is|as (?:you|said))\b|👍|✅|🙏|👌"
    r"|是的?|好的?|可以|行|对|嗯|确认|没问题|同意|请|就这样|办吧|麻烦|当然|需要|要的|没错|成|中|就这|就按|退|办|订|换|开一个|来吧|改吧|订吧|退吧|取消吧|发吧|吧|谢谢|OK|ok"
    r"|はい|ええ|お願い|おねがい|うん|大丈夫|結構|了解|いいです|よろしい|それで|頼み|構いません|問題(?:あり|ない)|オーケー|了承|承知|進めて|どうぞ|そうして|その通り|間違いない|ください|下さい|同意|オッケー|そうします|はーい|そうする|変えちゃ|ありがとう|いいよ|たのむ|よし",
    re.I,
)
NO = re.compile(
    r"^\W*(?:no|nope|nah|stop|wait|hold on|hang on|not yet|don['’]?t|never ?mind|cancel that|no,? thank(?:s| you)|actually,? no|let me think|i['’]?ll think|maybe later|not sure|hmm+)\b"
    r"|\b(?:let me think|think about it|not sure|get back to you|need to check with|don['’]?t (?:do|change|send|cancel|book) (?:it|that|anything)|hold off|not now|not yet)\b"
    r"|^\W*(?:不用|不要|不行|别|算了|先不|等等|等一下|不了|暂时不|我再想|我考虑|让我想|我想想)|再想想|考虑一下|想一想|先别|先不要|暂时不要"
    r"|^\W*(?:いいえ|いえ|いや|やめ|待って|ちょっと待|結構です(?:$|。)|まだ|少し考え|考え)|考えさせて|検討(?:し|させ)|待ってください|やめておき|保留",
    re.I,
)
# The user wants to ask somebody, or to think, before anything is done.
DEFERS = re.compile(
    r"\b(?:i(?:['’]d| had)? better|let me|i(?:['’]ll| will| need to| have to| must| want to| should|['’]d (?:like|want|rather|prefer)(?: to)?)(?: just| first)?) "
    r"(?:ring|call|phone|text|ask|check (?:with|that|it|first)|talk (?:to|with|it)|speak (?:to|with)|consult|discuss|think|sleep on|see what|find out)\b|\b(?:ask|check with|talk to|speak to) (?:my|him|her|them|the)\b[^.!?\n]{0,24}\bfirst\b"
    r"|先[^，。！？,!?\n]{0,4}(?:打个?电话|问|商量|想想|看看|考虑)|(?:问问|问一下|问下|商量)[^，。！？,!?\n]{0,8}(?:再|看)|回头再|晚点再|过会儿再"
    r"|(?:相談|聞い?|尋ね|訊い?|確認|電話|連絡)し?て?(?:から|み(?:ます|る|ない)|に(?:なり|し))|相談し(?:たい|ます|て)|あとで(?:また|連絡)|後で(?:また|連絡)|また(?:連絡|あとで|後で)",
    re.I,
)
# A request in the form of a question is consent: "could you put it down like that?"
REQUEST = re.compile(
    r"\b(?:can|could|would|will) you (?!tell|explain|check|show|say|confirm|clarify|remind|wait|hold)|(?:帮|给|替)(?:我|他|她|我们|咱)|(?:もらえ|いただけ|くれ|頂け)(?:ます|ません|る|ない)?(?:でしょう)?か?",
    re.I,
)
QUESTION = re.compile(r"(?:[?？]|吗|呢|か|かな)\W*$")
STRONG_YES = re.compile(
    r"\b(?:yes|yeah|yep|yup|go ahead|go for it|please do|do it|confirm(?:ed)?|proceed|ok(?:ay)?|sure|approved?)\b|是的|好的|可以的?|确认|没问题|同意|はい|お願いし|大丈夫|進めて",
    re.I,
)
ASKS = re.compile(
    r"[?？]|\b(?:confirm|let me know|say (?:yes|the word)|reply|go-ahead|approv\w+|shall i|okay to|ok to|your (?:consent|permission|ok)|just say|if you agree|happy to)\b|吗|请确认|确认|是否|可以的话|同意|回复|要不要|没问题|告诉我|ですか|ますか|ましょうか|でしょうか|か。|いただければ|よろしい|確認|ください|ご了承|\\bi(?:'|’)?(?:d| would|ll| will)\\b",
    re.I,
)
CONSENT_POLICY = re.compile(
    r"\bexplicit(?:ly)?\b[^.\n]{0,80}\b(?:confirm\w*|consent\w*|yes|approv\w*|agree\w*|permission|ok)\b|\bobtain[^.\n]{0,60}(?:confirm|consent|approv|permission|agree)"
    r"|\b(?:wait|ask|get|obtain|seek|need|require|want)\w*\b[^.\n]{0,60}\b(?:for|until|to|a|an|their|the|clear)\b[^.\n]{0,40}\b(?:yes\b|agree\w*|consent|confirm\w*|approv\w*|go-ahead|permission|ok\b|okay)"
    r"|\b(?:yes|consent|confirmation|approval|agreement|go-ahead|permission)\b[^.\n]{0,40}\b(?:before|first|is (?:required|needed))\b"
    r"|(?:同意|确认|許可|许可|认可|答应|肯定)[^。\n]{0,16}(?:后|之后|才|再|方可|之前|前不得)|(?:征得|取得|得到|获得|经)[^。\n]{0,16}(?:同意|确认|许可)|(?:等|须|需|请)[^。\n]{0,24}(?:同意|确认|答复|点头|说好|回复)"
    r"|(?:同意|承諾|了承|確認|許可|了解|返事|「はい」|はい)[^。\n]{0,24}(?:得|待|もらっ|いただ|取っ|取り|とっ|してから|まで)",
    re.I,
)
LOOKUP_POLICY = re.compile(
    r"\b(?:look(?:ed|ing)?\b[^.\n]{0,30}\bup|check|verify|read|retrieve|view|open|find|get|fetch|locate)\b[^.\n]{0,80}\b(?:before|first)\b"
    r"|\bbefore\b[^.\n]{0,60}\b(?:look(?:ed|ing)? (?:it |them )?up|check\w*|verif\w*|read\w*|retriev\w*|fetch\w*)\b|\bmust be (?:looked up|checked|verified|read|retrieved)\b"
    r"|\bnever (?:act|change|modify)\b[^.\n]{0,40}\bnot (?:looked up|checked|seen|read)\b"
    r"|先[^。\n]{0,24}(?:查|核实|核对|读取|查看|调出)|(?:查询|查看|核实|核对|查到|查过|读取)[^。\n]{0,24}(?:后|之后|再|才)|(?:前|之前)[^。\n]{0,12}(?:查询|查看|核实|核对|读取|查)"
    r"|(?:前に|まず|先に|事前に|必ず)[^。\n]{0,40}(?:確認|照会|検索|調べ|読|参照|呼び出)|(?:確認|照会|検索|調べ|読|参照)[^。\n]{0,16}(?:てから|した上で|した後|たうえで|うえで)",
    re.I,
)
# Actions that a call alone can do: nothing else that an assistant does is called so.
PLAIN_ACTIONS = frozenset(("cancel", "refund", "block", "delete", "renew", "upgrade", "subscribe"))
ALSO = re.compile(r"\b(?:also|as well|too|in addition)\b|も|也|还|同时|併せ|あわせ")
PEOPLE = frozenset(
    ["human", "person", "agent", "representative", "staff", "operator", "supervisor", "support", "department"]
)


def is_handover(words: set[str]) -> bool:
    """Return whether a tool hands the conversation over to a person, which needs no consent."""
    return bool(words & {"transfer", "escalate", "handoff", "handover"} and words & PEOPLE) or bool(
        words & {"escalate", "handoff", "think"}
    )
