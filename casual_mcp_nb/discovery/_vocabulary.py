"""The search's word lists: general knowledge about requests and tools, as plain text."""

from __future__ import annotations

STOP_WORDS = """
a able about above after again against all am an and any anyone anything are as at be because been
before being below between both but by can could currently d did different do does doing don down
during each eg either else etc few for from further get give got had has have having he hello help
her here hey hi him his how i id ie if im in include including interested into is it its ive just
know let like ll look looking lot m make many may me might mine more most must my need no nor not of
off oh ok okay on once only or other ought our out over own particular per please possible provide
re related s same shall she should show so some someone something specific such sure t tell than
thank thanks that the their them then there these they this those through to too under until up us
use used using various ve very via want was we were what when where which while who whom whose why
will with without wondering would you your
"""
"""Words without information about a tool, including request words (`need`, `please`, `show`)."""

WEAK_WORDS = """
able accurate accurately across actually additional additionally advanced afternoon afterwards again
allow along already also always amazing appropriate around assist assistance available basic
beautiful besides best better big bit brief carefully certain complete comprehensive consider
correctly crucial curious custom customized day different diverse easily easy effective effectively
efficient efficiently enjoy ensure entire especially essential evening exact exactly fast favorite
final finally first firstly five follow following four full furthermore gather given go going good
great hope ideal important inside interest interested interesting just keep key kindly large last
lastly later latest let long lot love main major meanwhile month moreover morning multiple new next
nice now offer often old one option options overall particular perfect personal personalized plan
planning popular precise prefer preferably preference previous professional properly quick quickly
range ready real really recent recently related relevant request required right say seamlessly
second see several short significant simple simply small sometimes special specific specifically
still successful such suitable suppose tailored thing things third thoroughly three today tomorrow
tonight top try trying two understand unique upcoming usually variety various visit way ways week
weekend well whether whole wide wish within wonder wonderful year yesterday yet
"""
"""Filler words that rarely identify a tool: order, time, praise, quality and quantity."""

COMPOUNDS = """
GitHub GitLab YouTube LinkedIn WhatsApp TikTok PowerPoint OneDrive OneNote SharePoint WordPress
JavaScript TypeScript PostgreSQL MySQL MongoDB SQLite GraphQL BigQuery OpenAI DuckDuckGo PayPal
HubSpot ClickUp
"""
"""Names in mixed case that are one word: people write them in lower case too."""

EXTENSIONS = """
7z avi bmp c cfg cpp csv db doc docx epub gif go gz h htm html ini ipynb java jpeg jpg js json log
md mkv mov mp3 mp4 odt parquet pdf png ppt pptx py rar rb rs rtf sh sql svg tar toml ts tsv txt wav
webp xls xlsx xml yaml yml zip
"""
"""File extensions."""

SYNONYMS = """
create making add new generate insert build compose
write save store put edit
read open load view
delete remove erase clear drop discard cancel
update edit modify change set alter adjust revise
search find query lookup discover locate seek explore
getting fetch retrieve obtain download pull
list showing display enumerate
send post submit publish share deliver
run execute launch start invoke trigger
stop kill terminate end halt abort
convert transform translate turn change
calculate compute count evaluate sum total
compare diff difference versus
check verify validate test confirm inspect
describe explain summarize summary overview
analyze analysis examine inspect review
copy duplicate clone
move rename relocate transfer
buy purchase order shop shopping
book reserve reservation appointment schedule
recommend suggest recommendation suggestion advice similar
plot chart graph diagram visualize visualization draw
extract parse scrape crawl
connect join link attach
monitor track watch follow
upload import
export download save
install setup configure
login authenticate sign
play stream listen
subscribe register enroll signup
rate rating review score
detect identify recognize
predict forecast estimate
fix repair solve resolve debug
learn study teach education course lesson tutorial
improve optimize enhance
file document doc
folder directory path
image picture photo screenshot
video movie film clip youtube
music song track audio playlist album
email mail message inbox
message chat sms text
web website webpage page url site internet online browser
code program script source repository repo
issue ticket bug
task todo reminder
note memo page
user person people account profile member
company business firm organization corporation
customer client
employee staff worker
product item goods merchandise
price cost fee quote value
money payment pay fund cash transaction
stock share equity market ticker
finance financial investment invest
currency exchange forex
crypto cryptocurrency bitcoin ethereum coin token
bank account balance
weather forecast temperature climate rain
location place address position coordinates geocode
map route direction navigation navigate
near nearby around close
travel trip vacation holiday itinerary tourism tour sightseeing attraction
hotel accommodation lodging stay room
flight airline airport plane
car vehicle auto drive
taxi cab ride
train railway rail
restaurant food dining meal eat
recipe cook ingredient dish
nutrition diet calorie food
health medical medicine doctor patient disease
therapist psychologist psychiatrist doctor
exercise workout fitness training
paper article publication literature research study academic scholar scientific
news headline article
book novel read author
event calendar meeting appointment
date time day calendar
timezone clock time
job career employment vacancy position hiring
course class lesson tutorial learn
game gaming play
sport team match player
rank ranking top leaderboard popular best trending
latest recent new current now
history historical past
database sql table query
row record entry
column field
spreadsheet excel sheet workbook xlsx csv
presentation slide powerpoint pptx ppt
word docx document
pdf document
markdown md
command shell terminal process
error exception log failure
commit version revision
branch fork
container docker pod
network ip host domain
statistics stats metrics analytics data
number amount quantity count
math arithmetic equation calculate
add addition sum plus
subtract subtraction sub minus
multiply multiplication mul
divide division div
art drawing design logo picture
language translate translation
law legal court lawyer crime
gift present shopping
discount coupon deal promotion offer
advertisement ad advertising marketing campaign promotion brand
house property apartment rent estate home
information info detail details data
question answer ask quiz
joke fun humor entertainment
love relationship dating
child kid children baby
pet animal dog cat
plant garden flower
tv television shows series episode
actor cast person star
director crew
sensor device iot
light lamp brightness
password credential secret key
friend contact follower
comment reply review feedback
tag label category
size length width dimension
color colour
distance far radius
speed fast performance
security vulnerability threat
tax revenue income salary
horoscope astrology zodiac tarot
podcast radio audio
shipment shipping delivery package parcel
invoice bill receipt
wikipedia encyclopedia knowledge
keyword seo search
resume cv
transcript subtitle caption
symptom illness disease diagnosis
city town country region
"""
"""Synonyms, one group per line: first actions, then objects."""

TOPICS = """
product item laptop smartphone phone camera gadget electronics appliance clothes clothing shoe
furniture;
buy purchase shop store ecommerce marketplace retailer cart checkout;
apparel clothing clothes fashion outfit dress wear style; cuisine cook recipe food dish culinary;
beverage drink coffee wine beer cocktail; restaurant cafe bar pub eatery;
astrology astrological horoscope zodiac; property estate house home mortgage landlord tenant;
charge charger charging station ev; funding investor startup venture; ceo executive founder company;
lawyer attorney solicitor law legal; lawsuit court case litigation;
vaccine trial clinical drug treatment therapy; gene genetic dna protein variant mutation;
drug medication medicine pharmacy prescription; hospital clinic doctor patient;
mental stress anxiety meditation mindfulness therapy; sleep health wellness;
gym fitness workout sport; football soccer league match; basketball nba;
fixture match game schedule; driver race racing formula; anime manga;
player champion hero character; leaderboard rank ranking ladder standing;
server host machine instance vm; cloud aws azure gcp infrastructure;
deploy deployment release publish; kubernetes cluster pod k8s container;
repository repo github gitlab; pull merge pr; commit history log; developer engineer programmer;
library package module dependency; npm package javascript node; maven gradle java dependency;
pip pypi python package; documentation docs doc reference manual guide; example sample snippet demo;
component widget ui element; icon logo symbol; font typography; layout template design;
theme style color; screenshot capture snapshot screen; click press tap; type fill input enter;
scroll swipe; browser tab page navigate; navigate visit go open; html page web markup;
json xml yaml format; csv spreadsheet table data; parse read extract; regex pattern match;
replace substitute edit; append add insert; concatenate merge combine join; split divide separate;
sort order arrange; filter select criteria; encrypt decrypt cipher encryption; hash checksum digest;
compress zip archive unzip; backup restore snapshot; sync synchronize;
schedule cron timer alarm reminder; timer countdown stopwatch alarm; duration length time;
timezone utc gmt; calendar date holiday; birthday birth born; age old birth;
phone telephone mobile call; call phone dial; contact phone address email; sms text message;
whatsapp telegram slack discord chat message; channel group room; post tweet status;
twitter tweet x; reddit subreddit post; facebook instagram tiktok social media;
influencer follower social; hashtag trend; trend trending popular hot; headline breaking news;
journalist press news; newspaper magazine news; encyclopedia wikipedia article;
definition define meaning dictionary word; synonym antonym thesaurus word;
grammar spelling proofread writing; essay write writing; rewrite paraphrase rephrase polish;
translate translation multilingual; speech voice audio speak tts;
transcribe transcription transcript speech; voice sound audio; lyric song;
artist singer band musician; concert show event ticket; theater theatre cinema movie;
ticket booking reservation; genre category; seat reservation;
cabin lodge villa airbnb hotel lodging; bus transit coach transport; subway metro transit train;
ferry boat ship cruise; parking park car; traffic road congestion; rent rental hire lease;
airport terminal gate flight; visa passport immigration; currency dollar euro usd eur money;
exchange convert currency rate; loan mortgage credit interest debt; insurance policy claim coverage;
budget expense spending finance; salary wage pay income; earnings revenue profit income;
dividend yield stock; portfolio investment holding asset; stock price quote market ticker;
etf fund index; bond treasury yield; gold silver metal commodity; nft token blockchain;
blockchain chain crypto wallet ethereum; wallet balance address; defi swap liquidity pool token;
economy economic gdp inflation; tax irs; invoice payment billing; refund return cancel;
subscription plan membership; order track shipment; deliver delivery ship;
stock inventory supply availability; supplier vendor manufacturer; customer support service help;
lead prospect crm sales; deal pipeline opportunity sales; campaign newsletter email marketing;
survey poll form questionnaire; form field input; vote poll election;
politics political election government; government agency public dataset;
dataset data package resource; census population demographic; crime police safety;
earthquake seismic quake disaster; wind humidity precipitation weather;
rain snow storm precipitation weather; sun sunrise sunset; moon lunar phase;
space nasa astronomy star planet; satellite orbit space; elevation altitude height;
distance mile kilometer length; convert unit measurement; kilogram pound weight mass;
fahrenheit celsius temperature; area surface region; volume capacity; equation solve algebra math;
derivative integral calculus; matrix vector linear algebra; prime factor number;
random dice roll coin flip shuffle; probability chance odds; mean average median statistics;
histogram bar pie chart; mindmap mind map; flowchart flow diagram uml; timeline gantt chart;
dashboard report analytics; report summary document; slide deck presentation;
paragraph heading text document; table cell row column; worksheet sheet workbook tab;
formula cell excel; watermark signature pdf; ocr recognize text image; caption describe image;
resize crop rotate image; filter effect image; generate image ai art draw; portrait face photo;
prompt instruction; embedding vector semantic; memory remember recall store;
remember memory knowledge observation entity fact note; knowledge graph entity relation;
entity node graph; relationship edge relation link; thought think reasoning; plan strategy step;
brainstorm idea creative; story tale fiction narrative; poem poetry; quote saying; trivia fact quiz;
puzzle riddle game; chess move board; movie actor cast director; series season episode;
watch stream streaming; trailer video clip; subtitle caption; podcast episode; author writer;
isbn book; publish publication; citation reference bibliography cite; arxiv paper preprint;
paper document pdf report; script code file; data file dataset; pubmed medical literature;
university college school campus education; student pupil; teacher instructor tutor; exam test quiz;
homework assignment; interview candidate recruit hire; resume cv; recruiter hr talent;
team member group; meeting call conference zoom; agenda meeting; attendee participant guest invite;
invite invitation; role permission access; token key secret api; login signin sign credential;
password passphrase; scan detect vulnerability malware; virus malware threat;
firewall rule security; dns domain whois registrar; certificate ssl tls; ping latency network;
port host; bandwidth speed network; url link uri; shorten short url; qr barcode code;
sitemap url page; crawl spider scrape; proxy request http; http request api; endpoint api route;
webhook event trigger; log error debug; metric monitoring performance;
alert alarm notification notify; notification push; job task queue; process program pid application;
application app software program; install package; config configuration setting settings option;
setting preference; environment variable env; version release; upgrade update; build compile;
test unit; lint format; branch checkout switch; diff difference change; directory list tree;
metadata info property; permission access; size storage disk space; disk drive storage;
cpu memory ram processor; battery power; temperature thermostat heat; light switch turn lamp;
lock unlock door; camera video security; device smart home; speaker volume; vehicle vin car;
license plate; fuel gas petrol; flight departure arrival; itinerary plan trip;
attraction landmark museum; museum gallery art; park outdoor nature; hike trail hiking;
beach surf coast ocean; sea ocean marine; animal species wildlife; dog cat breed pet;
plant crop agriculture farm; farm agriculture; wedding marriage; family parent; baby pregnancy;
gift idea; charity nonprofit donation donate; religion bible prayer; bible verse scripture;
tarot card reading; dream interpretation; zip zipcode postal postcode code; country nation state;
state province region; street address; latitude longitude coordinate; geolocation ip location;
geocode address coordinate; reverse geocode; nearest nearby closest; poi amenity place; store shop;
fortune astrology destiny horoscope; air pollution aqi; library book reading;
"""
"""Word groups by topic, separated by `;`. A word is weak evidence for the others in its group."""

OPERATORS = """
add: + plus
subtract: - \u2212 minus
multiply: * \u00d7 x times multiplied_by
divide: / \u00f7 divided_by
power: ^ ** to_the_power_of
modulo: % mod modulo
percent: %_of percent_of
"""
"""Words for the operators between two numbers, with `_` for a space."""

PHRASES = """
enumerate: (?:do|have) (?:i|we|you) (?:have|got)
enumerate: (?:what|which)(?= (?!is|was|has|does|this)[a-z]+s[^a-z])
enumerate: (?:show|tell|give) (?:me|us)(?= (?:(?:all|the|my|our) )*[a-z]+s(?![a-z]))
enumerate contents: what(?:'s|\u2019s| is) in(?= (?:this|that|the|my|our) )
search: look(?:ing)? up
delete: get(?:ting)? rid of|throw(?:ing)? (?:away|out)
write note: (?:jot|note) (?:(?:this|that|it) )?down
add reminder: (?:remember|remind me|don'?t forget) to
remember store add: remember(?:ing)?|memori[sz]e|keep in mind|don'?t forget
write add: (?:writ(?:e|ing)|put)(?= (?:[a-z]+ ){1,4}(?:in|into|to|on) (?:an?|the|my|this) )
create: mak(?:e|ing)(?= (?!(?:sure|sense|use|it|this|that|them|the|my|our|your)(?![a-z]))[a-z])
todo: to[- ]do
subtract: take away|take (?=[0-9])
greet: say (?:hello|hi)
temperature: how (?:hot|cold|warm)
size: how (?:big|large)
age: how old
distance: how far
weight: how heavy
height: how tall
speed: how fast
length: how long (?:is|are|was)
duration: how long
"""
"""People's phrases, as patterns in ASCII and lower case, and the words that tools use for them.

`enumerate` is a weak hint: few tools declare it, but all that list something match it as a synonym.
"""
