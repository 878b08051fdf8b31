/** The icons that the page uses (Lucide), as the inside of an SVG. */

import activity from "lucide-static/icons/activity.svg?raw";
import archive from "lucide-static/icons/archive.svg?raw";
import arrowDown from "lucide-static/icons/arrow-down.svg?raw";
import arrowLeft from "lucide-static/icons/arrow-left.svg?raw";
import arrowUp from "lucide-static/icons/arrow-up.svg?raw";
import atSign from "lucide-static/icons/at-sign.svg?raw";
import brain from "lucide-static/icons/brain.svg?raw";
import bell from "lucide-static/icons/bell.svg?raw";
import calendarClock from "lucide-static/icons/calendar-clock.svg?raw";
import bookOpen from "lucide-static/icons/book-open.svg?raw";
import check from "lucide-static/icons/check.svg?raw";
import chevronDown from "lucide-static/icons/chevron-down.svg?raw";
import chevronLeft from "lucide-static/icons/chevron-left.svg?raw";
import chevronRight from "lucide-static/icons/chevron-right.svg?raw";
import circleAlert from "lucide-static/icons/circle-alert.svg?raw";
import circlePause from "lucide-static/icons/circle-pause.svg?raw";
import circleHelp from "lucide-static/icons/circle-help.svg?raw";
import clock from "lucide-static/icons/clock.svg?raw";
import command from "lucide-static/icons/command.svg?raw";
import copy from "lucide-static/icons/copy.svg?raw";
import cpu from "lucide-static/icons/cpu.svg?raw";
import download from "lucide-static/icons/download.svg?raw";
import ellipsis from "lucide-static/icons/ellipsis.svg?raw";
import laptop from "lucide-static/icons/laptop.svg?raw";
import megaphone from "lucide-static/icons/megaphone.svg?raw";
import smartphone from "lucide-static/icons/smartphone.svg?raw";
import file from "lucide-static/icons/file.svg?raw";
import fileCode from "lucide-static/icons/file-code.svg?raw";
import filePen from "lucide-static/icons/file-pen.svg?raw";
import fileText from "lucide-static/icons/file-text.svg?raw";
import fileUp from "lucide-static/icons/file-up.svg?raw";
import folder from "lucide-static/icons/folder.svg?raw";
import folderOpen from "lucide-static/icons/folder-open.svg?raw";
import gitBranch from "lucide-static/icons/git-branch.svg?raw";
import gitCompare from "lucide-static/icons/git-compare.svg?raw";
import globe from "lucide-static/icons/globe.svg?raw";
import gripVertical from "lucide-static/icons/grip-vertical.svg?raw";
import hash from "lucide-static/icons/hash.svg?raw";
import history from "lucide-static/icons/history.svg?raw";
import inbox from "lucide-static/icons/inbox.svg?raw";
import image from "lucide-static/icons/image.svg?raw";
import key from "lucide-static/icons/key.svg?raw";
import layers from "lucide-static/icons/layers.svg?raw";
import listChecks from "lucide-static/icons/list-checks.svg?raw";
import lock from "lucide-static/icons/lock.svg?raw";
import maximize2 from "lucide-static/icons/maximize-2.svg?raw";
import menu from "lucide-static/icons/menu.svg?raw";
import mail from "lucide-static/icons/mail.svg?raw";
import messageCircle from "lucide-static/icons/message-circle.svg?raw";
import messageSquare from "lucide-static/icons/message-square.svg?raw";
import mic from "lucide-static/icons/mic.svg?raw";
import moon from "lucide-static/icons/moon.svg?raw";
import palette from "lucide-static/icons/palette.svg?raw";
import panelLeft from "lucide-static/icons/panel-left.svg?raw";
import panelRight from "lucide-static/icons/panel-right.svg?raw";
import paperclip from "lucide-static/icons/paperclip.svg?raw";
import pencil from "lucide-static/icons/pencil.svg?raw";
import pin from "lucide-static/icons/pin.svg?raw";
import pinOff from "lucide-static/icons/pin-off.svg?raw";
import plus from "lucide-static/icons/plus.svg?raw";
import redo2 from "lucide-static/icons/redo-2.svg?raw";
import printer from "lucide-static/icons/printer.svg?raw";
import rotateCw from "lucide-static/icons/rotate-cw.svg?raw";
import eye from "lucide-static/icons/eye.svg?raw";
import lightbulb from "lucide-static/icons/lightbulb.svg?raw";
import star from "lucide-static/icons/star.svg?raw";
import search from "lucide-static/icons/search.svg?raw";
import send from "lucide-static/icons/send.svg?raw";
import settings from "lucide-static/icons/settings.svg?raw";
import shield from "lucide-static/icons/shield.svg?raw";
import sparkles from "lucide-static/icons/sparkles.svg?raw";
import split from "lucide-static/icons/split.svg?raw";
import wallet from "lucide-static/icons/wallet.svg?raw";
import skipForward from "lucide-static/icons/skip-forward.svg?raw";
import square from "lucide-static/icons/square.svg?raw";
import squarePen from "lucide-static/icons/square-pen.svg?raw";
import sun from "lucide-static/icons/sun.svg?raw";
import table from "lucide-static/icons/table.svg?raw";
import tag from "lucide-static/icons/tag.svg?raw";
import terminal from "lucide-static/icons/terminal.svg?raw";
import trash2 from "lucide-static/icons/trash-2.svg?raw";
import undo2 from "lucide-static/icons/undo-2.svg?raw";
import unplug from "lucide-static/icons/unplug.svg?raw";
import upload from "lucide-static/icons/upload.svg?raw";
import users from "lucide-static/icons/users.svg?raw";
import webhook from "lucide-static/icons/webhook.svg?raw";
import wrench from "lucide-static/icons/wrench.svg?raw";
import volume2 from "lucide-static/icons/volume-2.svg?raw";
import x from "lucide-static/icons/x.svg?raw";
import logOut from "lucide-static/icons/log-out.svg?raw";

const files = {
  "activity": activity,
  "archive": archive,
  "arrow-down": arrowDown,
  "arrow-left": arrowLeft,
  "arrow-up": arrowUp,
  "at-sign": atSign,
  "brain": brain,
  "calendar-clock": calendarClock,
  "check": check,
  "chevron-down": chevronDown,
  "chevron-left": chevronLeft,
  "chevron-right": chevronRight,
  "circle-alert": circleAlert,
  "circle-help": circleHelp,
  "circle-pause": circlePause,
  "clock": clock,
  "command": command,
  "copy": copy,
  "cpu": cpu,
  "download": download,
  "ellipsis": ellipsis,
  "file": file,
  "file-code": fileCode,
  "file-pen": filePen,
  "file-text": fileText,
  "book-open": bookOpen,
  "file-up": fileUp,
  "folder": folder,
  "folder-open": folderOpen,
  "git-branch": gitBranch,
  "git-compare": gitCompare,
  "globe": globe,
  "grip-vertical": gripVertical,
  "hash": hash,
  "history": history,
  "image": image,
  "inbox": inbox,
  "key": key,
  "layers": layers,
  "list-checks": listChecks,
  "lock": lock,
  "maximize-2": maximize2,
  "menu": menu,
  "mail": mail,
  "message-circle": messageCircle,
  "message-square": messageSquare,
  "mic": mic,
  "moon": moon,
  "palette": palette,
  "panel-left": panelLeft,
  "panel-right": panelRight,
  "paperclip": paperclip,
  "pencil": pencil,
  "pin": pin,
  "pin-off": pinOff,
  "plus": plus,
  "redo-2": redo2,
  "printer": printer,
  "rotate-cw": rotateCw,
  "eye": eye,
  "lightbulb": lightbulb,
  "star": star,
  "search": search,
  "send": send,
  "settings": settings,
  "shield": shield,
  "sparkles": sparkles,
  "split": split,
  "wallet": wallet,
  "skip-forward": skipForward,
  "square": square,
  "square-pen": squarePen,
  "sun": sun,
  "table": table,
  "tag": tag,
  "terminal": terminal,
  "trash-2": trash2,
  "undo-2": undo2,
  "unplug": unplug,
  "upload": upload,
  "users": users,
  "bell": bell,
  "laptop": laptop,
  "megaphone": megaphone,
  "smartphone": smartphone,
  "webhook": webhook,
  "wrench": wrench,
  "volume-2": volume2,
  "x": x,
  "log-out": logOut,
};

export type IconName = keyof typeof files;

/** Only the shapes: size and stroke come from the style sheet. */
export const shapes = Object.fromEntries(
  Object.entries(files).map(([name, svg]) => [name, svg.replace(/^[\s\S]*?<svg[\s\S]*?>/, "").replace(/<\/svg>\s*$/, "")]),
) as Record<IconName, string>;
